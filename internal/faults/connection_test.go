package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

// proxied is a scene with a proxy before its server; client and queue go around it, through goes through it.
type proxied struct {
	*scene
	proxy   *toxiproxy.Proxy
	through valkey.Client
}

// attributes of a toxic, as its kind has them.
type attributes map[string]int

func newProxied(t *testing.T, change ...func(*valkey.ClientOption)) *proxied {
	t.Helper()
	s := newScene(t, valkeyd.Options{TCP: true})
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, s.Name(), "127.0.0.1:0", s.server.Options().InitAddress[0])
	require.NoError(t, proxy.Start())
	t.Cleanup(proxy.Stop)
	options := valkey.ClientOption{InitAddress: []string{proxy.Listen}, DisableCache: true, DisableRetry: true, PipelineMultiplex: -1} // one connection, which is there
	options.ConnWriteTimeout = 2 * time.Second
	for _, c := range change {
		c(&options)
	}
	through, err := valkey.NewClient(options)
	require.NoError(t, err)
	t.Cleanup(through.Close)
	return &proxied{s, proxy, through}
}

// toxic poisons the proxy until the returned function is called.
func (p *proxied) toxic(kind, stream string, a attributes) (heal func()) {
	p.Helper()
	text, err := json.Marshal(map[string]any{"name": kind, "type": kind, "stream": stream, "toxicity": 1.0, "attributes": a})
	require.NoError(p, err)
	_, err = p.proxy.Toxics.AddToxicJson(bytes.NewReader(text))
	require.NoError(p, err)
	return func() {
		p.Helper()
		require.NoError(p, p.proxy.Toxics.RemoveToxic(context.Background(), kind))
	}
}

// calls is how often the server ran scripts.
func (s *scene) calls() int64 {
	s.Helper()
	text, err := s.do("INFO", "commandstats").ToString()
	require.NoError(s, err)
	for line := range strings.Lines(text) {
		if rest, is := strings.CutPrefix(line, "cmdstat_evalsha:calls="); is {
			count, _, _ := strings.Cut(rest, ",")
			n, err := strconv.ParseInt(count, 10, 64)
			require.NoError(s, err)
			return n
		}
	}
	return 0
}

// The script of a claim ran and its reply is lost: the job is nobody's until its lease ends, what it spent stays spent, and the
// claim was sent once, whatever the client is set to.
func TestF20F21ClaimWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	for name, retry := range map[string]bool{"client that repeats": true, "client that does not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t, func(o *valkey.ClientOption) { o.DisableRetry = !retry })
			_, err := p.SetLimit(t.Context(), limiter.PerHour(10), "")
			require.NoError(t, err)
			p.add("", "", "")
			c, err := claim.New(p.through, p.Name(), claim.Options{Lease: time.Second})
			require.NoError(t, err)
			_, err = c.Claim(t.Context(), 0)
			require.NoError(t, err)
			before := p.calls()
			heal := p.toxic("limit_data", "downstream", attributes{"bytes": 0})
			// A claim that meets a connection that is broken already is not sent at all.
			until(t, "a claim is sent", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err = c.Claim(ctx, 1)
				return assert.Error(t, err) && p.calls() > before
			})
			assert.EqualValues(t, 1, p.calls()-before, "it ran once")
			n, err := p.Counts(t.Context())
			require.NoError(t, err)
			assert.Equal(t, []int64{2, 1}, []int64{n.Wait, n.Active}, "claimed, and nobody knows")
			heal()
			until(t, "the job is granted again", func() bool {
				_, err := c.Claim(t.Context(), 3)
				return err == nil && p.grants("j0") == 2
			})
			used, err := p.do("GET", p.keys.Limiter()).AsInt64()
			require.NoError(t, err)
			p.judged()
			p.figure("1 execution, 1 job back after its lease, %d units spent for %d grants", used, p.grants("j0")+p.grants("j1")+p.grants("j2"))
		})
	}
}

// A request that never arrives looks the same to the client; nothing is to be cleaned up.
func TestF22RequestThatNeverArrives(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	p.add("")
	c, err := claim.New(p.through, p.Name(), claim.Options{})
	require.NoError(t, err)
	before := p.calls()
	heal := p.toxic("timeout", "upstream", attributes{"timeout": 0})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = c.Claim(ctx, 1)
	require.Error(t, err)
	assert.EqualValues(t, 0, p.calls()-before)
	heal()
	until(t, "the next claim gets the job", func() bool { b, err := c.Claim(t.Context(), 1); return err == nil && len(b.Jobs) == 1 })
	assert.Equal(t, 1, p.grants("j0"))
	p.figure("0 executions, nothing to recover")
}

// A time-out means that it is not known what happened: the error says that it is one, and the script ran.
func TestF23SlowServer(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	c, err := claim.New(p.through, p.Name(), claim.Options{})
	require.NoError(t, err)
	p.add("")
	heal := p.toxic("latency", "downstream", attributes{"latency": 1500})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = c.Claim(ctx, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.NotErrorIs(t, err, queue.ErrUnavailable, "that would say that nothing ran")
	until(t, "it ran all the same", func() bool { return p.grants("j0") == 1 })
	heal()
}

// A settle whose reply is lost is sent again and answered as the first time.
func TestF24SettleWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	p.add("")
	c, err := claim.New(p.through, p.Name(), claim.Options{Lease: time.Minute})
	require.NoError(t, err)
	b, err := c.Claim(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, b.Jobs, 1)
	heal := p.toxic("limit_data", "downstream", attributes{"bytes": 0})
	settled := make(chan error, 1)
	go func() {
		answers, err := c.Settle(t.Context(), []claim.Outcome{claim.Complete(b.Jobs[0])})
		settled <- errors.Join(append(answers, err)...)
	}()
	p.becomes("j0", queue.Completed)
	heal()
	require.NoError(t, <-settled)
	assert.Equal(t, []string{"complete"}, p.settles("j0"))
	p.figure("answered as the first time, 1 completion")
}

// An enqueue whose reply is lost is made again with the same id: the job is there once.
func TestF25EnqueueWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	q, err := queue.New(p.through, p.Name(), queue.Options{})
	require.NoError(t, err)
	_, err = q.Enqueue(t.Context(), queue.Job{ID: "before"})
	require.NoError(t, err)
	heal := p.toxic("limit_data", "downstream", attributes{"bytes": 0})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err = q.Enqueue(ctx, queue.Job{ID: "a", Payload: []byte("first")})
	require.Error(t, err)
	require.NotErrorIs(t, err, queue.ErrDuplicate)
	heal()
	until(t, "the second answers that it is there", func() bool {
		_, err := q.Enqueue(t.Context(), queue.Job{ID: "a", Payload: []byte("first")})
		return errors.Is(err, queue.ErrDuplicate)
	})
	n, err := p.Counts(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 2, n.Wait)
	p.figure("the job is there once")
}

// The server stands still: the handler's context ends before its lease does by the server's clock.
func TestF26F39ServerThatStandsStill(t *testing.T) {
	t.Parallel()
	s := newScene(t, valkeyd.Options{TCP: true})
	const lease = 2 * time.Second
	started, ended := make(chan time.Time, 10), make(chan error, 10)
	w, err := worker.New(s.client, s.Name(), func(ctx context.Context, job *worker.Job) error {
		started <- time.Now()
		if job.Reclaims > 0 {
			return nil
		}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	}, worker.Options{Claim: claim.Options{Lease: lease}})
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, w.Run(context.WithoutCancel(t.Context()))) })
	s.add("")
	at := <-started
	require.NoError(t, s.server.Pause())
	cause := <-ended
	took := time.Since(at)
	require.ErrorIs(t, cause, claim.ErrLeaseLost)
	assert.Less(t, took, 2*lease, "before the lease that was last extended ends")
	time.Sleep(lease) // the lease ends while the server stands still
	require.NoError(t, s.server.Resume())
	done := s.becomes("j0", queue.Completed)
	assert.Zero(t, done.Attempts, "a stall spends none")
	w.Stop()
	running.Wait()
	s.figure("context ended %v after the start under a lease of %v; run again after the stall, no attempt spent", took.Round(10*time.Millisecond), lease)
}

// One connection for blocking commands, and it waits: claims, beats and settles go on.
func TestF27BlockedConnections(t *testing.T) {
	t.Parallel()
	s := newScene(t, valkeyd.Options{TCP: true})
	options := s.server.Options()
	options.BlockingPoolSize = 1
	client, err := valkey.NewClient(options)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	blocked, cancel := context.WithCancel(t.Context())
	var blocking sync.WaitGroup
	blocking.Go(func() { _ = client.Do(blocked, client.B().Blpop().Key("nothing").Timeout(0).Build()).Error() })
	c, err := claim.New(client, s.Name(), claim.Options{Lease: time.Second})
	require.NoError(t, err)
	s.add("")
	b, err := c.Claim(t.Context(), 1)
	require.NoError(t, err)
	lost, err := c.Extend(t.Context(), b.Jobs)
	require.NoError(t, err)
	assert.Empty(t, lost)
	_, err = c.Settle(t.Context(), []claim.Outcome{claim.Complete(b.Jobs[0])})
	require.NoError(t, err)
	s.becomes("j0", queue.Completed)
	cancel()
	blocking.Wait()
}

// A server that has no room for another client is asked again and again, not in a tight loop.
func TestF28NoRoomForAnotherClient(t *testing.T) {
	t.Parallel()
	s := newScene(t, valkeyd.Options{TCP: true})
	s.add("")
	options := s.server.Options()
	options.DisableRetry = true
	client, err := valkey.NewClient(options)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	w, err := worker.New(client, s.Name(), func(context.Context, *worker.Job) error { return nil }, worker.Options{})
	require.NoError(t, err)
	admin := s.admin()
	admin("CONFIG", "SET", "maxclients", "1")
	admin("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	connections := func() int64 {
		text, err := admin("INFO", "stats").ToString()
		require.NoError(t, err)
		_, rest, _ := strings.Cut(text, "rejected_connections:")
		count, _, _ := strings.Cut(rest, "\r")
		n, err := strconv.ParseInt(count, 10, 64)
		require.NoError(t, err)
		return n
	}
	before := connections()
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, w.Run(context.WithoutCancel(t.Context()))) })
	time.Sleep(3 * time.Second) // of trying
	tries := connections() - before
	assert.Positive(t, tries)
	assert.Less(t, tries, int64(30), "connects in 3 s")
	admin("CONFIG", "SET", "maxclients", "1000")
	s.becomes("j0", queue.Completed)
	w.Stop()
	running.Wait()
	s.figure("%d connects in 3 s, then the job was run", tries)
}

// Connections are killed all the time: each job completes, and nothing is left behind.
func TestF29ConnectionsThatAreKilled(t *testing.T) {
	t.Parallel()
	s := newScene(t, valkeyd.Options{TCP: true})
	_, err := s.SetLimit(t.Context(), limiter.Limit{Max: 100, Window: 200 * time.Millisecond}, "")
	require.NoError(t, err)
	options := s.server.Options()
	client, err := valkey.NewClient(options)
	require.NoError(t, err)
	var runs atomic.Int64
	w, err := worker.New(client, s.Name(), func(context.Context, *worker.Job) error { runs.Add(1); return nil },
		worker.Options{Concurrency: 20, Claim: claim.Options{Lease: time.Second}})
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, w.Run(context.WithoutCancel(t.Context()))) })
	const jobs = 1500
	for range jobs / 100 {
		payloads := make([]string, 100)
		s.add(payloads...)
	}
	kills, admin := 0, s.admin()
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); kills++ {
		admin("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		time.Sleep(50 * time.Millisecond)
	}
	s.empty()
	w.Stop()
	running.Wait()
	client.Close()
	n, err := s.Counts(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, jobs, n.Completed+n.Dead)
	s.judged()
	s.figure("%d kills: %d jobs completed, %d dead, %d runs, none over or under", kills, n.Completed, n.Dead, runs.Load())
}

// A server whose client is denied HELLO speaks RESP2.
func TestF34RESP2(t *testing.T) {
	t.Parallel()
	s := newScene(t, valkeyd.Options{TCP: true})
	s.do("ACL", "SETUSER", "old", "on", ">old", "~*", "&*", "+@all", "-hello")
	options := s.server.Options()
	options.Username, options.Password, options.AlwaysRESP2, options.DisableCache = "old", "old", true, true
	client, err := valkey.NewClient(options)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	runs := make(chan string, 1)
	w, err := worker.New(client, s.Name(), func(_ context.Context, j *worker.Job) error { runs <- string(j.Payload); return nil }, worker.Options{})
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, w.Run(context.WithoutCancel(t.Context()))) })
	q, err := queue.New(client, s.Name(), queue.Options{})
	require.NoError(t, err)
	_, err = q.Enqueue(t.Context(), queue.Job{Payload: []byte("over RESP2")})
	require.NoError(t, err)
	assert.Equal(t, "over RESP2", <-runs)
	s.empty()
	w.Stop()
	running.Wait()
}

// A server that loads a large file answers LOADING: workers wait, and no attempt is spent.
func TestF35ServerThatLoads(t *testing.T) {
	t.Parallel()
	s := newScene(t, valkeyd.Options{TCP: true, Args: []string{"--appendonly", "yes", "--key-load-delay", "200", "--loading-process-events-interval-bytes", "1024"}})
	w, err := worker.New(s.client, s.Name(), func(context.Context, *worker.Job) error { return nil }, worker.Options{})
	require.NoError(t, err)
	s.add(make([]string, 500)...)
	for i := range 5000 {
		s.do("SET", fmt.Sprintf("filler%d", i), "x")
	}
	s.server.Kill()
	restarted := make(chan error, 1)
	go func() { restarted <- s.server.Restart() }()
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, w.Run(context.WithoutCancel(t.Context()))) })
	require.NoError(t, <-restarted)
	s.empty()
	n, err := s.Counts(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 500, n.Completed)
	assert.Zero(t, s.get("j0").Attempts+s.get("j499").Attempts, "none failed")
	w.Stop()
	running.Wait()
}

// Scripts of other kinds, and their loss, do not matter: nothing here is a function.
func TestF38FunctionFlush(t *testing.T) {
	t.Parallel()
	s := newScene(t, valkeyd.Options{})
	s.add("")
	s.do("FUNCTION", "FLUSH")
	b, err := s.claimer(time.Second).Claim(t.Context(), 1)
	require.NoError(t, err)
	assert.Len(t, b.Jobs, 1)
}

// Another tenant's script makes the server busy for less than a lease: calls wait, no lease is lost, no attempt spent.
func TestF39BusyServer(t *testing.T) {
	t.Parallel()
	s := newScene(t, valkeyd.Options{TCP: true, Args: []string{"--busy-reply-threshold", "50"}})
	s.add("sleep 2500ms")
	c := start(t, setup{URL: s.server.URL(), Queue: s.Name(), Lease: 2 * time.Second})
	c.next("start")
	other, err := valkey.NewClient(s.server.Options())
	require.NoError(t, err)
	t.Cleanup(other.Close)
	go func() {
		time.Sleep(900 * time.Millisecond)
		_ = other.Do(context.Background(), other.B().ScriptKill().Build()).Error()
	}()
	err = s.client.Do(t.Context(), s.client.B().Eval().Script("while true do end").Numkeys(0).Build()).Error()
	require.ErrorContains(t, err, "killed")
	assert.Empty(t, c.next("end").Cause)
	done := s.becomes("j0", queue.Completed)
	assert.Equal(t, 1, s.grants("j0"))
	assert.Zero(t, done.Attempts)
}
