package faults

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

// replica starts a replica of a scene's server, and returns when it has all that its primary has.
func (s *scene) replica(args ...string) (*valkeyd.Server, valkey.Client) {
	s.Helper()
	host, port, err := net.SplitHostPort(s.server.Options().InitAddress[0])
	require.NoError(s, err)
	server, err := valkeyd.Start(valkeyd.Options{TCP: true, Args: append([]string{"--replicaof", host + " " + port, "--repl-diskless-sync-delay", "0"}, args...)})
	require.NoError(s, err)
	s.Cleanup(server.Stop)
	client, err := valkey.NewClient(server.Options())
	require.NoError(s, err)
	s.Cleanup(client.Close)
	s.inSync(client)
	return server, client
}

// inSync waits until a replica has what its primary has now.
func (s *scene) inSync(replica valkey.Client) {
	s.Helper()
	until(s.T, "the replica is in sync", func() bool {
		text, err := replica.Do(context.Background(), replica.B().Info().Section("replication").Build()).ToString()
		return err == nil && strings.Contains(text, "master_link_status:up")
	})
	mark := strconv.FormatInt(time.Now().UnixNano(), 10)
	s.do("SET", "mark", mark)
	until(s.T, "the replica follows", func() bool {
		got, err := replica.Do(context.Background(), replica.B().Get().Key("mark").Build()).ToString()
		return err == nil && got == mark
	})
}

func primary() valkeyd.Options {
	return valkeyd.Options{TCP: true, Args: []string{"--repl-diskless-sync-delay", "0"}}
}

// The link to the replica breaks, work goes on, the primary dies and the replica takes its place: what was done meanwhile is gone or
// done again, and each job ends. The budget admits at most max more.
func TestF55FailoverThatLosesWrites(t *testing.T) {
	t.Parallel()
	s := newScene(t, primary())
	const most = 30
	_, err := s.SetLimit(t.Context(), limiter.Limit{Max: most, Window: time.Hour}, "")
	require.NoError(t, err)
	s.add(make([]string, 100)...)
	c := s.claimer(2 * time.Second)
	b, err := c.Claim(t.Context(), 10) // known to both
	require.NoError(t, err)
	settle := func(jobs []*claim.Job) {
		t.Helper()
		var outcomes []claim.Outcome
		for _, j := range jobs {
			outcomes = append(outcomes, claim.Complete(j))
		}
		_, err := c.Settle(t.Context(), outcomes)
		require.NoError(t, err)
	}
	settle(b.Jobs[:5])
	_, client := s.replica()
	require.NoError(t, client.Do(t.Context(), client.B().Arbitrary("REPLICAOF", "127.0.0.1", "1").Build()).Error()) // the link is cut
	settle(b.Jobs[5:])                                                                                              // acknowledged, and lost
	tail, err := c.Claim(t.Context(), most)
	require.NoError(t, err)
	assert.Len(t, tail.Jobs, most-10, "the rest of the window")
	s.add("lost") // acknowledged, and lost
	s.server.Kill()
	require.NoError(t, client.Do(t.Context(), client.B().Arbitrary("REPLICAOF", "NO", "ONE").Build()).Error())
	s.client = client
	s.Queue, err = queue.New(client, s.Name(), queue.Options{})
	require.NoError(t, err)
	_, err = s.Get(t.Context(), "j100")
	require.ErrorIs(t, err, queue.ErrNotFound, "enqueued in the tail")
	again, err := s.claimer(time.Minute).Claim(t.Context(), 200)
	require.NoError(t, err)
	twice := map[string]bool{}
	for _, j := range tail.Jobs {
		twice[j.ID] = true
	}
	overlap := 0
	for _, j := range again.Jobs {
		if twice[j.ID] {
			overlap++
		}
	}
	assert.LessOrEqual(t, 10+len(tail.Jobs)+len(again.Jobs), 2*most, "at most max more than max")
	_, err = s.SetLimit(t.Context(), limiter.PerSecond(100_000), "")
	require.NoError(t, err)
	stop := s.work(done)
	until(t, "all that is known ends but what is claimed by hand", func() bool {
		n, err := s.Counts(context.Background())
		return err == nil && n.Wait+n.Delayed == 0 && n.Completed == int64(100-len(again.Jobs))
	})
	stop()
	s.figure("1 enqueue and 5 completions lost with the tail, %d jobs claimed twice, %d grants in a window of %d", overlap, 10+len(tail.Jobs)+len(again.Jobs), most)
}

// Three Sentinels promote the replica when the primary dies; workers go on without a restart.
func TestF56Sentinel(t *testing.T) {
	t.Parallel()
	s := newScene(t, primary())
	s.replica()
	host, port, err := net.SplitHostPort(s.server.Options().InitAddress[0])
	require.NoError(t, err)
	var addresses []string
	for range 3 {
		addresses = append(addresses, sentinel(t, host, port))
	}
	options := valkey.ClientOption{InitAddress: addresses, Sentinel: valkey.SentinelOption{MasterSet: "main"}}
	var client valkey.Client
	until(t, "the sentinels know the primary", func() bool {
		client, err = valkey.NewClient(options)
		return err == nil
	})
	t.Cleanup(client.Close)
	quorum, err := valkey.NewClient(valkey.ClientOption{InitAddress: addresses[:1], ForceSingleClient: true, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(quorum.Close)
	until(t, "the sentinels know each other and the replica", func() bool {
		info, err := quorum.Do(t.Context(), quorum.B().Info().Section("sentinel").Build()).ToString()
		return err == nil && strings.Contains(info, "slaves=1,sentinels=3")
	})
	w, err := worker.New(client, s.Name(), done, worker.Options{Claim: claim.Options{Lease: 2 * time.Second}})
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, w.Run(context.WithoutCancel(t.Context()))) })
	q, err := queue.New(client, s.Name(), queue.Options{})
	require.NoError(t, err)
	_, err = q.Enqueue(t.Context(), queue.Job{ID: "before", Retain: time.Hour})
	require.NoError(t, err)
	completes := func(id string) {
		t.Helper()
		until(t, id+" completes", func() bool {
			j, err := q.Get(context.Background(), id)
			return err == nil && j.State == queue.Completed
		})
	}
	completes("before")
	killed := time.Now()
	s.server.Kill()
	until(t, "the new primary takes jobs", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := q.Enqueue(ctx, queue.Job{ID: "after", Retain: time.Hour})
		return err == nil || strings.Contains(err.Error(), "duplicate")
	})
	writable := time.Since(killed)
	completes("after")
	w.Stop()
	running.Wait()
	s.figure("writable again %v after the kill, the next job done %v after it, by the same workers", writable.Round(10*time.Millisecond), time.Since(killed).Round(10*time.Millisecond))
}

// sentinel starts a Sentinel and returns its address.
func sentinel(t *testing.T, host, port string) string {
	t.Helper()
	program, err := valkeyd.Find()
	require.NoError(t, err)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	_, own, _ := net.SplitHostPort(address)
	free.Close()
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\nsentinel monitor main %s %s 2\nsentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 10000\n", own, host, port)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	cmd := exec.Command(program, file, "--sentinel")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	until(t, "a sentinel answers", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return address
}

// The old primary is cut off with some of the workers, and a new one is made: each side grants its own budget until the old one is
// stopped. That is what the promise leaves out.
func TestF57SplitBrain(t *testing.T) {
	t.Parallel()
	s := newScene(t, primary())
	const most = 5
	_, err := s.SetLimit(t.Context(), limiter.Limit{Max: most, Window: time.Hour}, "")
	require.NoError(t, err)
	s.add(make([]string, 3*most)...)
	_, client := s.replica()
	require.NoError(t, client.Do(t.Context(), client.B().Arbitrary("REPLICAOF", "NO", "ONE").Build()).Error())
	granted := 0
	for _, side := range []valkey.Client{s.client, client} {
		c, err := claim.New(side, s.Name(), claim.Options{})
		require.NoError(t, err)
		b, err := c.Claim(t.Context(), 3*most)
		require.NoError(t, err)
		assert.Len(t, b.Jobs, most, "each side its own window")
		granted += len(b.Jobs)
	}
	s.figure("%d grants in a window of %d: max for each side", granted, most)
}

// A client that was led to a replica is refused, and says that nothing ran; reads are answered.
func TestF58F59Replica(t *testing.T) {
	t.Parallel()
	s := newScene(t, primary())
	s.add("")
	_, client := s.replica("--replica-serve-stale-data", "no")
	q, err := queue.New(client, s.Name(), queue.Options{})
	require.NoError(t, err)
	_, err = q.Enqueue(t.Context(), queue.Job{})
	require.ErrorIs(t, err, queue.ErrUnavailable)
	require.ErrorContains(t, err, "READONLY")
	c, err := claim.New(client, s.Name(), claim.Options{})
	require.NoError(t, err)
	_, err = c.Claim(t.Context(), 1)
	require.ErrorIs(t, err, queue.ErrUnavailable)
	n, err := metrics.ReadCounts(t.Context(), client, s.Name())
	require.NoError(t, err)
	assert.EqualValues(t, 1, n.Wait)
	s.server.Kill() // the link is down, and stale data are not to be served
	until(t, "it says so", func() bool {
		_, err = metrics.ReadCounts(context.Background(), client, s.Name())
		return err != nil
	})
	require.ErrorIs(t, err, queue.ErrUnavailable, "which is not zero jobs")
	require.ErrorContains(t, err, "MASTERDOWN")
}

// Too few replicas: nothing ran, and it is said so.
func TestF60TooFewReplicas(t *testing.T) {
	t.Parallel()
	s := newScene(t, primary())
	s.add("")
	before := s.digest()
	s.do("CONFIG", "SET", "min-replicas-to-write", "1")
	_, err := s.Enqueue(t.Context(), queue.Job{})
	require.ErrorIs(t, err, queue.ErrUnavailable)
	require.ErrorContains(t, err, "NOREPLICAS")
	_, err = s.claimer(time.Minute).Claim(t.Context(), 1)
	require.ErrorIs(t, err, queue.ErrUnavailable)
	assert.Equal(t, before, s.digest())
}

// What a coordinated failover does: writes wait, reads are answered, no lease is lost.
func TestF61PausedWrites(t *testing.T) {
	t.Parallel()
	s := newScene(t, valkeyd.Options{TCP: true})
	s.add("sleep 3s", "")
	c := start(t, setup{URL: s.server.URL(), Queue: s.Name(), Lease: 6 * time.Second, Concurrency: 1})
	c.next("start")
	begin := time.Now()
	s.do("CLIENT", "PAUSE", "1500", "WRITE")
	_, err := metrics.ReadCounts(t.Context(), s.client, s.Name())
	require.NoError(t, err)
	read := time.Since(begin)
	_, err = s.Enqueue(t.Context(), queue.Job{Retain: time.Hour})
	require.NoError(t, err)
	wrote := time.Since(begin)
	assert.Greater(t, wrote, 1200*time.Millisecond)
	assert.Empty(t, c.next("end").Cause)
	s.becomes("j0", queue.Completed)
	assert.Equal(t, 1, s.grants("j0"))
	s.figure("a read took %v, a write %v, no lease lost", read.Round(time.Millisecond), wrote.Round(10*time.Millisecond))
}

// A slot moves from one master to another under load, key by key: calls meet TRYAGAIN, ASK and MOVED, claims may stall, nothing is lost.
func TestF62F63F64SlotThatMoves(t *testing.T) {
	t.Parallel()
	cluster, err := valkeyd.StartCluster(3)
	require.NoError(t, err)
	t.Cleanup(cluster.Stop)
	client, err := valkey.NewClient(cluster.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	s := on(t, client)
	_, err = s.SetLimit(t.Context(), limiter.Limit{Max: 50, Window: 250 * time.Millisecond}, "")
	require.NoError(t, err)
	w, err := worker.New(client, s.Name(), done, worker.Options{Claim: claim.Options{Lease: 2 * time.Second}})
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, w.Run(context.WithoutCancel(t.Context()))) })
	const jobs = 600
	stored := 0
	enqueue := func(n int) {
		for range n {
			id := "m" + strconv.Itoa(stored)
			until(t, "an enqueue is taken", func() bool {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				_, err := s.Enqueue(ctx, queue.Job{ID: id, Retain: time.Hour})
				return err == nil || strings.Contains(err.Error(), "duplicate")
			})
			stored++
		}
	}
	enqueue(jobs / 2)
	moved := move(t, cluster, lua.Slot(s.Name()))
	enqueue(jobs / 2)
	s.empty()
	w.Stop()
	running.Wait()
	n, err := s.Counts(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, jobs, n.Completed+n.Dead)
	r := s.judged()
	s.figure("slot moved with %d keys under load: %d jobs of %d completed, %d grants, none over or under", moved, n.Completed, jobs, r.Granted)
}

// move moves a slot from its master to another, and returns how many keys that were.
func move(t *testing.T, cluster *valkeyd.ServerCluster, slot int) (keys int) {
	t.Helper()
	clients := make([]valkey.Client, len(cluster.Masters))
	ids := make([]string, len(cluster.Masters))
	from := -1
	run := func(i int, words ...string) valkey.ValkeyResult {
		t.Helper()
		r := clients[i].Do(context.Background(), clients[i].B().Arbitrary(words...).Build())
		require.NoError(t, r.Error(), words)
		return r
	}
	for i, m := range cluster.Masters {
		options := m.Options()
		options.ForceSingleClient, options.DisableCache = true, true
		var err error
		clients[i], err = valkey.NewClient(options)
		require.NoError(t, err)
		t.Cleanup(clients[i].Close)
		ids[i], err = run(i, "CLUSTER", "MYID").ToString()
		require.NoError(t, err)
		n, err := run(i, "CLUSTER", "COUNTKEYSINSLOT", strconv.Itoa(slot)).AsInt64()
		require.NoError(t, err)
		if n > 0 {
			from = i
		}
	}
	require.GreaterOrEqual(t, from, 0)
	to := (from + 1) % len(clients)
	number := strconv.Itoa(slot)
	run(to, "CLUSTER", "SETSLOT", number, "IMPORTING", ids[from])
	run(from, "CLUSTER", "SETSLOT", number, "MIGRATING", ids[to])
	host, port, err := net.SplitHostPort(cluster.Masters[to].Options().InitAddress[0])
	require.NoError(t, err)
	for {
		names, err := run(from, "CLUSTER", "GETKEYSINSLOT", number, "5").AsStrSlice()
		require.NoError(t, err)
		if len(names) == 0 {
			break
		}
		run(from, append([]string{"MIGRATE", host, port, "", "0", "5000", "KEYS"}, names...)...)
		keys += len(names)
		time.Sleep(10 * time.Millisecond) // so that calls meet a slot that is in two places
	}
	for _, i := range []int{to, from} {
		run(i, "CLUSTER", "SETSLOT", number, "NODE", ids[to])
	}
	for i := range clients {
		if i != to && i != from {
			run(i, "CLUSTER", "SETSLOT", number, "NODE", ids[to])
		}
	}
	return keys
}

// One of three masters dies: the queues of its slots are not available, and say so; no attempt is spent.
func TestF65MasterThatDies(t *testing.T) {
	t.Parallel()
	cluster, err := valkeyd.StartCluster(3)
	require.NoError(t, err)
	t.Cleanup(cluster.Stop)
	client, err := valkey.NewClient(cluster.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	s := on(t, client)
	s.add("")
	slot, victim := lua.Slot(s.Name()), 0
	for i, m := range cluster.Masters {
		one, err := valkey.NewClient(valkey.ClientOption{InitAddress: m.Options().InitAddress, ForceSingleClient: true, DisableCache: true})
		require.NoError(t, err)
		n, err := one.Do(t.Context(), one.B().Arbitrary("CLUSTER", "COUNTKEYSINSLOT", strconv.Itoa(slot)).Build()).AsInt64()
		require.NoError(t, err)
		require.NoError(t, one.Do(t.Context(), one.B().Arbitrary("CONFIG", "SET", "cluster-require-full-coverage", "yes", "cluster-node-timeout", "1000").Build()).Error())
		one.Close()
		if n == 0 {
			victim = i // another than the queue's
		}
	}
	cluster.Masters[victim].Kill()
	until(t, "the cluster notices", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err = s.Counts(ctx)
		return err != nil && strings.Contains(err.Error(), "CLUSTERDOWN")
	})
	require.ErrorIs(t, err, queue.ErrUnavailable)
}
