package doctor_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/doctor"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

func TestMain(m *testing.M) { os.Exit(emqtest.Run(m)) }

type patient struct {
	*testing.T
	client valkey.Client
	server *valkeyd.Server
	q      *queue.Queue
}

func newPatient(t *testing.T, options valkeyd.Options) *patient {
	t.Helper()
	server, err := valkeyd.Start(options)
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client, err := valkey.NewClient(server.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	q, err := queue.New(client, "mail", queue.Options{})
	require.NoError(t, err)
	return &patient{t, client, server, q}
}

func (p *patient) do(words ...string) {
	p.Helper()
	require.NoError(p, p.client.Do(context.Background(), p.client.B().Arbitrary(words...).Build()).Error(), words)
}

// levels are the findings of a check.
func (p *patient) examine(fix bool) map[string][]doctor.Finding {
	p.Helper()
	d := doctor.Doctor{Client: p.client, Fix: fix}
	findings, err := d.Examine(context.Background(), []string{"mail"})
	require.NoError(p, err)
	by := map[string][]doctor.Finding{}
	for _, f := range findings {
		by[f.Check] = append(by[f.Check], f)
		if f.Level != doctor.OK && f.Level != doctor.Mended && f.Level != doctor.Unseen {
			assert.NotEmpty(p, f.Do, "%s: %s", f.Check, f.Finding)
		}
	}
	return by
}

// found says that a check found something of that level, in those words.
func (p *patient) found(by map[string][]doctor.Finding, check string, level doctor.Level, words string) {
	p.Helper()
	for _, f := range by[check] {
		if f.Level == level && strings.Contains(f.Finding, words) {
			return
		}
	}
	p.Errorf("%s found %+v; want %s with %q", check, by[check], level, words)
}

// A queue at work gives no false alarm.
func TestHealthyQueue(t *testing.T) {
	t.Parallel()
	p := newPatient(t, valkeyd.Options{Args: []string{"--appendonly", "yes"}})
	_, err := p.q.SetLimit(t.Context(), limiter.Limit{Max: 200, Window: 100 * time.Millisecond}, "")
	require.NoError(t, err)
	_, err = p.q.SetNamedLimit(t.Context(), queue.NamedLimit{Name: "tenant", Limit: limiter.Limit{Max: 20, Window: 100 * time.Millisecond}, By: "tenant"}, "")
	require.NoError(t, err)
	_, err = p.q.SetNamedLimit(t.Context(), queue.NamedLimit{Name: "flight", Limit: limiter.Limit{Algorithm: queue.Concurrency, Max: 5}}, "")
	require.NoError(t, err)
	w, err := worker.New(p.client, "mail", func(_ context.Context, j *worker.Job) error {
		if j.Attempt == 1 && len(j.Keys) == 0 {
			return os.ErrInvalid
		}
		return nil
	}, worker.Options{Backoff: worker.Exponential(10*time.Millisecond, time.Second)})
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, w.Run(context.Background())) })
	ctx, cancel := context.WithCancel(t.Context())
	running.Go(func() {
		for ctx.Err() == nil {
			jobs := make([]queue.Job, 20)
			for i := range jobs {
				if i%2 == 0 {
					jobs[i].Keys = map[string]string{"tenant": string(rune('a' + i%5))}
				}
			}
			_, _ = p.q.EnqueueMany(ctx, jobs)
			time.Sleep(10 * time.Millisecond)
		}
	})
	for range 8 {
		for check, findings := range p.examine(false) {
			for _, f := range findings {
				if check != "version" { // the one that is installed may be old
					assert.Contains(t, []doctor.Level{doctor.OK}, f.Level, "%s: %s", check, f.Finding)
				}
			}
		}
	}
	cancel()
	w.Stop()
	running.Wait()
}

// Each fault that is planted is found.
func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	p := newPatient(t, valkeyd.Options{})
	p.found(p.examine(false), "persistence", doctor.Warning, "no append-only file")
	p.do("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
	p.found(p.examine(false), "eviction", doctor.Wrong, "volatile-ttl")
	p.do("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1")
	p.found(p.examine(false), "memory", doctor.Wrong, "of its maxmemory")
	p.do("CONFIG", "SET", "maxmemory", "0")

	p.do("HSET", "emq:{mail}:meta", "max", "-5")
	p.found(p.examine(false), "settings", doctor.Wrong, "field max is")
	p.do("HSET", "emq:{mail}:meta", "max", "5", "audit", "1000", "layout", "7")
	by := p.examine(false)
	p.found(by, "layout", doctor.Wrong, `"7"`)
	p.found(by, "audit", doctor.Warning, "1000 entries")
	p.do("HDEL", "emq:{mail}:meta", "layout", "audit")

	p.do("SET", "emq:{mail}:limiter", "3")
	p.do("SET", "emq:{mail}:limiter:gone:x", "3")
	by = p.examine(false)
	p.found(by, "ttl", doctor.Wrong, "emq:{mail}:limiter has")
	p.found(by, "ttl", doctor.Wrong, "emq:{mail}:limiter:gone:x has")
	by = p.examine(true)
	p.found(by, "ttl", doctor.Mended, "emq:{mail}:limiter had")
	p.found(p.examine(true), "ttl", doctor.OK, "")
	ttl, err := p.client.Do(t.Context(), p.client.B().Pttl().Key("emq:{mail}:limiter").Build()).AsInt64()
	require.NoError(t, err)
	assert.Positive(t, ttl)

	_, err = p.q.Enqueue(t.Context(), queue.Job{ID: "a"})
	require.NoError(t, err)
	_, err = p.q.Enqueue(t.Context(), queue.Job{ID: "b"})
	require.NoError(t, err)
	p.found(p.examine(false), "places", doctor.OK, "")
	p.do("DEL", "emq:{mail}:job:a")
	p.do("LREM", "emq:{mail}:wait:2", "0", "b")
	by = p.examine(false)
	p.found(by, "places", doctor.Warning, "1 jobs are listed whose record is gone, such as a")
	p.found(by, "places", doctor.Wrong, "jobs that stand in no list: 1, such as b")
	p.found(p.examine(true), "places", doctor.Mended, "such as b")
	job, err := p.q.Get(t.Context(), "b")
	require.NoError(t, err)
	assert.Equal(t, queue.Wait, job.State)

	p.do("REPLICAOF", "127.0.0.1", "1")
	p.found(p.examine(false), "role", doctor.Wrong, "is a replica")
}

// Lines and places that hands broke are found, and put right; the jobs in them run.
func TestBrokenLimits(t *testing.T) {
	t.Parallel()
	p := newPatient(t, valkeyd.Options{})
	for _, limit := range []queue.NamedLimit{
		{Name: "tenant", Limit: limiter.Limit{Max: 1, Window: time.Millisecond}, By: "tenant"},
		{Name: "flight", Limit: limiter.Limit{Algorithm: queue.Concurrency, Max: 2}, By: "tenant"},
	} {
		_, err := p.q.SetNamedLimit(t.Context(), limit, "")
		require.NoError(t, err)
	}
	for range 4 {
		_, err := p.q.Enqueue(t.Context(), queue.Job{Keys: map[string]string{"tenant": "a"}})
		require.NoError(t, err)
	}
	claimer, err := claim.New(p.client, "mail", claim.Options{})
	require.NoError(t, err)
	leases, err := claimer.Claim(t.Context(), 4)
	require.NoError(t, err)
	require.Len(t, leases.Jobs, 1)
	p.found(p.examine(false), "lines", doctor.OK, "")
	p.found(p.examine(false), "leases", doctor.OK, "")

	p.do("DEL", "emq:{mail}:lines")
	p.do("ZADD", "emq:{mail}:lines:open", "1", "tenant:gone")
	p.do("HSET", "emq:{mail}:tally", "line ghost", "5")
	p.do("ZADD", "emq:{mail}:limiter:flight:a", "99999999999999", "nobody|1-x")
	p.do("HSET", "emq:{mail}:leases", "nobody|1-x", "flight:a")
	for _, fix := range []bool{false, true} {
		level := doctor.Wrong
		if fix {
			level = doctor.Mended
		}
		by := p.examine(fix)
		p.found(by, "lines", level, "lines that no claim looks at: 1, such as tenant:a")
		p.found(by, "lines", level, "empty lines that claims look at: 1, such as tenant:gone")
		p.found(by, "lines", level, "lines that are counted wrong: 1, such as ghost")
		p.found(by, "leases", level, "places and leases that belong to no active job: 2, such as nobody|1-x")
	}
	by := p.examine(false)
	p.found(by, "lines", doctor.OK, "")
	p.found(by, "leases", doctor.OK, "")
	leases, err = claimer.Claim(t.Context(), 4)
	require.NoError(t, err)
	require.Len(t, leases.Jobs, 1, "the line is served again, and the second place is free")
}

// What the user may not look at is told as that.
func TestUserWhoMayNotLook(t *testing.T) {
	t.Parallel()
	p := newPatient(t, valkeyd.Options{TCP: true})
	_, err := p.q.Enqueue(t.Context(), queue.Job{})
	require.NoError(t, err)
	p.do("ACL", "SETUSER", "little", "on", ">little", "~emq:*", "+@read", "+@connection", "+eval_ro", "+evalsha_ro", "+script|load", "-info", "-scan", "-time",
		"-zscan", "-hkeys", "-zrange")
	options := p.server.Options()
	options.Username, options.Password, options.DisableCache = "little", "little", true
	p.client, err = valkey.NewClient(options)
	require.NoError(t, err)
	t.Cleanup(p.client.Close)
	by := p.examine(false)
	p.found(by, "server", doctor.Unseen, "does not tell")
	p.found(by, "clock", doctor.Unseen, "does not tell")

	for _, check := range []string{"places", "lines", "leases"} {
		p.found(by, check, doctor.Unseen, "NOPERM")
	}
}

// Versions with known flaws are told from those without.
func TestVersions(t *testing.T) {
	t.Parallel()
	for info, want := range map[string]doctor.Level{
		"valkey_version:7.0.1": doctor.Wrong, "valkey_version:7.2.11": doctor.Warning, "valkey_version:7.2.12": doctor.OK,
		"valkey_version:8.0.1": doctor.Warning, "valkey_version:8.0.7": doctor.OK, "valkey_version:8.1.5": doctor.Warning, "valkey_version:8.1.6": doctor.OK,
		"valkey_version:9.0.1": doctor.Warning, "valkey_version:9.1.0": doctor.OK, "redis_version:6.2.0": doctor.Wrong, "redis_version:7.0.15": doctor.Warning,
		"redis_version:8.2.0": doctor.OK, "": doctor.Unseen, "redis_version:7.0.0\r\nmulti_master:1": doctor.Wrong,
	} {
		assert.Equal(t, want, doctor.JudgeVersion(info), info)
	}
}
