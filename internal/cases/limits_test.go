package cases

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

// genWith enqueues n jobs whose payloads are name and the numbers from 1, with keys (a % in a value is the number) and costs.
func (c testCase) genWith(name string, n int, keys map[string]string, cost map[string]int64) {
	c.Helper()
	var lines strings.Builder
	encoder := json.NewEncoder(&lines)
	for i := range n {
		job := map[string]any{"payload": name + strconv.Itoa(i+1)}
		if keys != nil {
			own := map[string]string{}
			for name, value := range keys {
				own[name] = strings.ReplaceAll(value, "%", strconv.Itoa(i+1))
			}
			job["keys"] = own
		}
		if cost != nil {
			job["cost"] = cost
		}
		require.NoError(c, encoder.Encode(job))
	}
	c.emqworker(lines.String(), "enqueue", c.q.Name(), "-")
}

func (c testCase) set(args ...string) {
	c.Helper()
	c.emqworker("", append([]string{"limits", "set", c.q.Name()}, args...)...)
}

func (c testCase) counts() queue.Counts {
	c.Helper()
	counts, err := c.q.Counts(ctx)
	require.NoError(c, err)
	return counts
}

// perWindow counts the starts in each of n windows.
func perWindow(all []started, length int64, n int) (counts []int) {
	for w := range int64(n) {
		counts = append(counts, starts(all, length*w, length*(w+1)))
	}
	return counts
}

// A05, the other half: the same under a sliding log, where no second holds more than 50.
func TestCaseA05SlidingLogHasNoSeam(t *testing.T) {
	c := open(t)
	c.set("50/1s", "--algorithm", "sliding_log")
	c.gen(101)
	all := c.fleet(3, 20, 4*time.Second, nil)
	require.Len(t, all, 101)
	require.Equal(t, []int{50, 50, 1}, perWindow(all, 1000, 3))
	for i := 50; i < 101; i++ {
		require.GreaterOrEqual(t, all[i].At-all[i-50].At, int64(1000), "at most 50 in any second")
	}
}

// A10, parse-community/parse-server#10624: two rules for one user count into one key: the first decides the window of both.
func TestCaseA10TwoRulesOfOneUser(t *testing.T) {
	c := open(t)
	c.set("a", "10/2s", "--by", "user")
	c.set("b", "5/1s", "--by", "user")
	c.genWith("", 100, map[string]string{"user": "u"}, nil)
	client := emqtest.Client(t)
	prefix := "emq:{" + c.q.Name() + "}:limiter:"
	all := c.fleet(2, 5, 10*time.Second, func(begun time.Time) {
		<-time.After(2500*time.Millisecond - time.Since(begun))
		for limit, window := range map[string]int64{"a": 2000, "b": 1000} {
			left, err := client.Do(ctx, client.B().Pttl().Key(prefix+limit+":u").Build()).AsInt64()
			require.NoError(t, err)
			require.LessOrEqual(t, left, window)
		}
		<-time.After(6300*time.Millisecond - time.Since(begun))
		c.emqworker("", "limits", "unset", c.q.Name(), "b")
	})
	require.Equal(t, 30, starts(all, 0, 6000))
	first := all[0].At
	for i := 10; i < len(all); i++ {
		require.GreaterOrEqual(t, all[i].At-all[i-10].At, int64(1000), "start %d at %d", i, all[i].At-first)
	}
	require.Equal(t, 10, starts(all, 8000, 10_000), "after the unset ten in two seconds")
}

// B05, scrapy/scrapy#2638, yacy/yacy_search_server#753: all slots hold requests of one polite host; the others wait although nobody
// calls them.
func TestCaseB05PoliteHostHoldsUpNoOther(t *testing.T) {
	c := open(t)
	c.set("host", "1/2s", "--by", "host", "--algorithm", "leaky_bucket")
	c.genWith("slow", 500, map[string]string{"host": "slow"}, nil)
	c.genWith("h", 200, map[string]string{"host": "h%"}, nil)
	all := c.fleet(1, 8, 10*time.Second, nil)
	var slow, others []started
	for _, s := range all {
		if strings.HasPrefix(s.Payload, "slow") {
			slow = append(slow, s)
		} else {
			others = append(others, s)
		}
	}
	require.Len(t, others, 200)
	require.Less(t, others[199].At-all[0].At, int64(500+late))
	require.Len(t, slow, 5)
}

// C06, ax-llm/ax#631, run-llama/llama_index#23202: a request larger than the bucket waits for a fill that cannot come, or is let
// straight through.
func TestCaseC06TooHeavyJobs(t *testing.T) {
	for _, algorithm := range []string{"fixed_window", "sliding_log", "sliding_window_counter", "token_bucket"} {
		t.Run(algorithm, func(t *testing.T) {
			c := open(t)
			c.set("tpm", "100/10s", "--by", "model", "--unit", "tokens", "--algorithm", algorithm)
			cmd := c.command("enqueue", c.q.Name(), "big", "--key", "model=a", "--cost", "tokens=200")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			require.Error(t, cmd.Run())
			require.Contains(t, stderr.String(), "200")
			require.Contains(t, stderr.String(), "100")
			require.Zero(t, c.counts().Wait, "nothing is stored")
			c.emqworker("", "enqueue", c.q.Name(), "mid", "--key", "model=a", "--cost", "tokens=80")
			c.emqworker("", "enqueue", c.q.Name(), "ok", "--key", "model=a", "--cost", "tokens=50")
			c.set("tpm", "50/10s")
			all := c.fleet(1, 2, 2*time.Second, nil)
			require.Len(t, all, 1)
			require.Equal(t, "ok", all[0].Payload)
			dead, err := c.q.List(ctx, queue.Dead, 0, 10)
			require.NoError(t, err)
			require.Len(t, dead, 1)
			require.Equal(t, queue.ReasonNeverFits, dead[0].Reason)
			require.Contains(t, dead[0].LastError, "tokens=80")
		})
	}
}

// D04, taskforcesh/bullmq#1929: four jobs of equal priority that were sent back by the limit come out as 2, 3, 1, 4.
func TestCaseD04OrderAfterRateLimited(t *testing.T) {
	c := open(t)
	c.set("1/100ms")
	c.gen(4)
	var mu sync.Mutex
	var order []string
	seen := map[string]bool{}
	finished := make(chan struct{})
	stop := c.work(func(_ context.Context, job *worker.Job) error {
		mu.Lock()
		defer mu.Unlock()
		payload := string(job.Payload)
		order = append(order, payload)
		if len(order) == 8 {
			close(finished)
		}
		if !seen[payload] {
			seen[payload] = true
			return worker.RateLimited(250 * time.Millisecond)
		}
		return nil
	}, worker.Options{Concurrency: 1})
	<-finished
	stop()
	require.Equal(t, "1 1 2 2 3 3 4 4", strings.Join(order, " "))
}

// E05, activepieces/activepieces#15033: a job behind its project's place waits a fixed 20 s although the place was freed at once.
func TestCaseE05FreedPlaceIsTakenAtOnce(t *testing.T) {
	c := open(t)
	c.set("project", "1", "--algorithm", "concurrency", "--by", "project")
	c.genWith("", 10, map[string]string{"project": "p"}, nil)
	var mu sync.Mutex
	var at []time.Time
	running := 0
	h := func(_ context.Context, _ *worker.Job) error {
		mu.Lock()
		at = append(at, time.Now())
		running++
		require.Equal(t, 1, running)
		mu.Unlock()
		time.Sleep(300 * time.Millisecond)
		mu.Lock()
		running--
		mu.Unlock()
		return nil
	}
	stop1, stop2 := c.work(h, worker.Options{Concurrency: 4}), c.work(h, worker.Options{Concurrency: 4})
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(at) == 10 }, time.Minute, 10*time.Millisecond)
	stop1()
	stop2()
	require.Less(t, at[9].Sub(at[0]), 9*300*time.Millisecond+500*time.Millisecond)
}

// F04, OptimalBits/bull#1148: a job that meets the limit is dropped from every list, or fails for good.
func TestCaseF04NothingIsDropped(t *testing.T) {
	c := open(t)
	c.set("tenant", "1/100ms", "--by", "tenant")
	jobs := make([]queue.Job, 30)
	for i := range jobs {
		jobs[i] = queue.Job{Keys: map[string]string{"tenant": "a"}, MaxAttempts: 1}
	}
	_, err := c.q.EnqueueMany(ctx, jobs)
	require.NoError(t, err)
	all := c.fleet(2, 4, 5*time.Second, nil)
	require.Len(t, all, 30)
	require.Less(t, all[29].At-all[0].At, int64(2900+5*late))
	for _, s := range all {
		require.Equal(t, 1, s.Attempt)
	}
	left := c.counts()
	left.At = time.Time{}
	require.Equal(t, queue.Counts{}, left)
}

// G02, BerriAI/litellm#10555: limit 15 tokens a minute, 7 a call: all calls pass.
func TestCaseG02TokensAreCounted(t *testing.T) {
	c := open(t)
	c.set("tpm", "15/2s", "--by", "key", "--unit", "tokens")
	c.set("rpm", "10/2s", "--by", "key")
	c.genWith("", 40, map[string]string{"key": "k"}, map[string]int64{"tokens": 7})
	all := c.fleet(3, 5, 12*time.Second, nil)
	require.Equal(t, []int{2, 2, 2, 2, 2}, perWindow(all, 2000, 5))
}

// G04, pentacent/keila#403: the provider states 40 a minute, 2,000 an hour and 5,000 a day; the queue can hold only one of them.
func TestCaseG04SeveralWindows(t *testing.T) {
	c := open(t)
	c.set("m", "8/1s")
	c.set("h", "30/5s")
	c.set("d", "50/20s")
	c.gen(200)
	all := c.fleet(2, 10, 22*time.Second, func(begun time.Time) {
		<-time.After(10*time.Second - time.Since(begun))
		next, err := c.q.List(ctx, queue.Delayed, 0, 1)
		require.NoError(t, err)
		require.Len(t, next, 1)
		e, err := metrics.Explain(ctx, emqtest.Client(t), c.q.Name(), next[0].ID)
		require.NoError(t, err)
		require.Equal(t, "d", e.By.Limit)
		require.Contains(t, c.emqworker("", "job", "explain", c.q.Name(), next[0].ID), "limit d")
		require.InDelta(t, 10, e.RetryAfter.Seconds(), 1.5)
	})
	require.Equal(t, []int{8, 8, 8, 6, 0, 8, 8, 4, 0, 0}, perWindow(all, 1000, 10))
	require.Equal(t, 50, starts(all, 0, 20_000))
	require.Greater(t, len(all), 50)
	require.Less(t, all[50].At-all[0].At, int64(20_000+late))
}

// H03, taskforcesh/bullmq#2679, #906: several queues should share a limit, or lie on a cluster: CROSSSLOT at run time.
func TestCaseH03QueuesOnACluster(t *testing.T) {
	t.Parallel()
	cluster, err := valkeyd.StartCluster(3)
	require.NoError(t, err)
	t.Cleanup(cluster.Stop)
	client, err := valkey.NewClient(cluster.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	var mu sync.Mutex
	ran := 0
	done := make(chan struct{})
	var stops []func()
	for n := range 20 {
		name := fmt.Sprintf("h03-%d", n)
		q, err := queue.New(client, name, queue.Options{})
		require.NoError(t, err)
		for _, by := range []string{"tenant", "model"} {
			_, err = q.SetNamedLimit(ctx, queue.NamedLimit{Name: by, By: by, Limit: limiter.PerSecond(1000)}, "")
			require.NoError(t, err)
		}
		for i := range 50 {
			_, err := q.Enqueue(ctx, queue.Job{Keys: map[string]string{"tenant": strconv.Itoa(i % 3), "model": strconv.Itoa(i % 2)}})
			require.NoError(t, err)
		}
		w, err := worker.New(client, name, func(context.Context, *worker.Job) error {
			mu.Lock()
			defer mu.Unlock()
			if ran++; ran == 1000 {
				close(done)
			}
			return nil
		}, worker.Options{Concurrency: 4, Claim: claim.Options{}})
		require.NoError(t, err)
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		stops = append(stops, func() { w.Stop(); require.NoError(t, <-ended) })
	}
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%d of 1000 jobs ran", ran)
	}
	for _, stop := range stops {
		stop()
	}
	// The limits were spent where their queue lies: all keys of a queue are in one slot.
	slots := map[string]map[int]bool{}
	for _, master := range cluster.Masters {
		node, err := valkey.NewClient(valkey.ClientOption{InitAddress: master.Options().InitAddress, ForceSingleClient: true})
		require.NoError(t, err)
		keys, err := node.Do(ctx, node.B().Keys().Pattern("emq:{*").Build()).AsStrSlice()
		require.NoError(t, err)
		for _, key := range keys {
			name, _, _ := strings.Cut(key, "}")
			if slots[name] == nil {
				slots[name] = map[int]bool{}
			}
			slots[name][int(lua.Slot(key))] = true
		}
		node.Close()
	}
	require.Len(t, slots, 20)
	for name, of := range slots {
		require.Len(t, of, 1, name)
	}
}
