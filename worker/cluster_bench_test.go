//go:build unix

package worker_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

// cluster is one of three masters, its client, and how to ask each master alone.
type cluster struct {
	testing.TB
	client  valkey.Client
	masters []valkey.Client
}

func startCluster(t testing.TB) *cluster {
	t.Helper()
	servers, err := valkeyd.StartCluster(3)
	require.NoError(t, err)
	t.Cleanup(servers.Stop)
	open := func(o valkey.ClientOption) valkey.Client {
		client, err := valkey.NewClient(o)
		require.NoError(t, err)
		t.Cleanup(client.Close)
		return client
	}
	c := &cluster{TB: t, client: open(servers.Options())}
	for _, s := range servers.Masters {
		o := s.Options()
		o.ForceSingleClient = true
		c.masters = append(c.masters, open(o))
	}
	return c
}

// queues are n queues that lie on the first so many masters, the same number on each.
func (c *cluster) queues(prefix string, n, masters int) (queues []*queue.Queue) {
	c.Helper()
	for i := 0; len(queues) < n; i++ {
		name := prefix + strconv.Itoa(i)
		if lua.Slot(name)*3/lua.Slots != len(queues)%masters {
			continue
		}
		q, err := queue.New(c.client, name, queue.Options{})
		require.NoError(c, err)
		queues = append(queues, q)
	}
	return queues
}

// run enqueues jobs to all queues, and returns when all have run and are settled. begun is called between the two.
func (c *cluster) run(queues []*queue.Queue, jobs, concurrency int, begun func()) {
	c.Helper()
	ctx := context.Background()
	for i, q := range queues {
		share := (jobs + i) / len(queues) // adds up to jobs
		answers, err := q.EnqueueMany(ctx, make([]queue.Job, share))
		require.NoError(c, err)
		require.Len(c, answers, share)
	}
	begun()
	left, all := atomic.Int64{}, make(chan struct{})
	left.Store(int64(jobs))
	workers, ended := make([]*worker.Worker, len(queues)), make(chan error, len(queues))
	for i, q := range queues {
		w, err := worker.New(c.client, q.Name(), func(context.Context, *worker.Job) error {
			if left.Add(-1) == 0 {
				close(all)
			}
			return nil
		}, worker.Options{Concurrency: concurrency})
		require.NoError(c, err)
		workers[i] = w
		go func() { ended <- w.Run(ctx) }()
	}
	select {
	case <-all:
	case <-time.After(time.Minute):
		for _, master := range c.masters {
			nodes, err := master.Do(ctx, master.B().ClusterNodes().Build()).ToString()
			c.Log(nodes, err)
		}
		c.Fatalf("%d of %d jobs have not run within a minute", left.Load(), jobs)
	}
	for _, w := range workers {
		w.Stop()
	}
	for range workers {
		require.NoError(c, <-ended)
	}
}

func TestQueuesOnAllMastersOfACluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	queues := c.queues("q", 12, 3)
	c.run(queues, 600, 10, func() {
		for i, q := range queues {
			slot, err := c.client.Do(t.Context(), c.client.B().ClusterKeyslot().Key("emq:{"+q.Name()+"}:meta").Build()).AsInt64()
			require.NoError(t, err)
			require.EqualValues(t, slot, lua.Slot(q.Name()), q.Name())
			for m, master := range c.masters {
				n, err := master.Do(t.Context(), master.B().Exists().Key("emq:{"+q.Name()+"}:wait:2").Build()).AsInt64()
				if m == i%3 {
					require.NoError(t, err)
					require.EqualValues(t, 1, n, "queue %s on master %d", q.Name(), m)
				} else {
					require.ErrorContains(t, err, "MOVED", "queue %s on master %d", q.Name(), m)
				}
			}
		}
	})
	for _, q := range queues {
		counts, err := q.Counts(t.Context())
		require.NoError(t, err)
		require.Zero(t, counts.Wait+counts.Active+counts.Delayed+counts.Dead+counts.Completed, q.Name())
	}
}

// BenchmarkCluster processes jobs with a handler that does nothing, in one process with one client and a worker for each queue. Beside
// the jobs a second it reports CPU time for each job, which other programs on the machine change less: of all masters' main threads, of
// the busiest of them, and of this process.
func BenchmarkCluster(b *testing.B) {
	c := startCluster(b)
	for _, m := range []struct{ queues, masters int }{{1, 1}, {12, 1}, {12, 2}, {12, 3}} {
		b.Run(fmt.Sprintf("queues=%d/masters=%d", m.queues, m.masters), func(b *testing.B) {
			c := &cluster{b, c.client, c.masters}
			var servers []time.Duration
			var process time.Duration
			c.run(c.queues(fmt.Sprintf("q%d-%d-%d-", m.queues, m.masters, b.N), m.queues, m.masters), b.N, 250, func() {
				servers, process = c.serverCPU(), processCPU(b)
				b.ResetTimer()
			})
			b.StopTimer()
			var sum, busiest time.Duration
			for i, cpu := range c.serverCPU() {
				sum += cpu - servers[i]
				busiest = max(busiest, cpu-servers[i])
			}
			jobs := float64(b.N)
			b.ReportMetric(jobs/b.Elapsed().Seconds(), "jobs/s")
			b.ReportMetric(float64(sum.Microseconds())/jobs, "server-µs/job")
			b.ReportMetric(float64((processCPU(b)-process).Microseconds())/jobs, "process-µs/job")
			b.ReportMetric(float64(busiest.Microseconds())/jobs, "busiest-µs/job")
		})
	}
}

// serverCPU is what the main thread of each master has used.
func (c *cluster) serverCPU() (used []time.Duration) {
	c.Helper()
	for _, master := range c.masters {
		info, err := master.Do(context.Background(), master.B().Info().Section("cpu").Build()).ToString()
		require.NoError(c, err)
		var sum float64
		for line := range strings.SplitSeq(info, "\r\n") {
			if name, value, _ := strings.Cut(line, ":"); strings.HasSuffix(name, "_main_thread") {
				seconds, err := strconv.ParseFloat(value, 64)
				require.NoError(c, err)
				sum += seconds
			}
		}
		used = append(used, time.Duration(sum*float64(time.Second)))
	}
	return used
}

func processCPU(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
