package faults

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
)

// lost runs a job in a process that dies of a fault, and then in another; it returns the scene when the job is completed.
func lost(t *testing.T, payload, fail string) *scene {
	t.Helper()
	s := newScene(t, valkeyd.Options{})
	_, err := s.SetLimit(t.Context(), limiter.PerHour(10), "")
	require.NoError(t, err)
	s.add(payload)
	first := start(t, setup{URL: s.server.URL(), Queue: s.Name(), Fail: fail})
	first.died()
	start(t, setup{URL: s.server.URL(), Queue: s.Name()})
	s.becomes("j0", queue.Completed)
	return s
}

// ran says how often the job was granted and what that cost; its attempts are never spent by a lost worker.
func (s *scene) ran(grants int) {
	s.Helper()
	assert.Equal(s, grants, s.grants("j0"))
	assert.Equal(s, []string{"complete"}, s.settles("j0"), "one completion")
	used, err := s.do("GET", s.keys.Limiter()).AsInt64()
	require.NoError(s, err)
	assert.EqualValues(s, grants, used, "each delivery spends, and nothing is given back")
	s.judged()
	s.figure("%d deliveries, %d units spent, 1 completion", grants, used)
}

func TestF01KilledBetweenClaimAndHandler(t *testing.T) {
	t.Parallel()
	lost(t, "", "claim:reply:1:kill").ran(2)
}

func TestF02KilledInTheHandler(t *testing.T) {
	t.Parallel()
	s := newScene(t, valkeyd.Options{})
	_, err := s.SetLimit(t.Context(), limiter.PerHour(10), "")
	require.NoError(t, err)
	s.add("first 1h")
	first := start(t, setup{URL: s.server.URL(), Queue: s.Name()})
	one := first.next("start")
	first.signal(syscall.SIGKILL)
	second := start(t, setup{URL: s.server.URL(), Queue: s.Name()})
	two := second.next("start")
	s.becomes("j0", queue.Completed)
	assert.Less(t, one.Token, two.Token)
	assert.Equal(t, []int{1, 1}, []int{one.Attempt, two.Attempt})
	s.ran(2)
}

func TestF03KilledBeforeTheSettleLeaves(t *testing.T) {
	t.Parallel()
	lost(t, "", "settle:send:1:kill").ran(2)
}

func TestF04KilledBeforeTheSettlesReplyIsRead(t *testing.T) {
	t.Parallel()
	lost(t, "", "settle:reply:1:kill").ran(1)
}

// A process is stopped between its look at the lease and its settle: only the server can tell that the lease has ended.
func TestF06StoppedBeforeTheSettleLeaves(t *testing.T) {
	t.Parallel()
	s := newScene(t, valkeyd.Options{})
	_, err := s.SetLimit(t.Context(), limiter.PerHour(10), "")
	require.NoError(t, err)
	s.add("")
	first := start(t, setup{URL: s.server.URL(), Queue: s.Name(), Fail: "settle:send:1:stop"})
	first.next("end")
	first.stopped()
	second := start(t, setup{URL: s.server.URL(), Queue: s.Name()})
	s.becomes("j0", queue.Completed)
	second.signal(syscall.SIGTERM)
	second.died()
	before := s.settles("j0")
	first.signal(syscall.SIGCONT)
	// It settles late, then goes on: a job that is enqueued now is run by it.
	s.add("")
	until(t, "the first process goes on", func() bool { return len(s.settles("j1")) == 1 || len(s.settles("j0")) > len(before) })
	assert.Equal(t, []string{"complete"}, s.settles("j0"), "the late one was refused")
	s.figure("stopped for more than a lease before its settle left: 2 deliveries, 1 completion")
}

// The beats of a worker go out while its handler burns the only processor.
func TestF08HandlerThatBurnsTheProcessor(t *testing.T) {
	t.Parallel()
	s := newScene(t, valkeyd.Options{})
	s.add("burn 5s")
	start(t, setup{URL: s.server.URL(), Queue: s.Name(), Procs: 1, Concurrency: 1})
	s.becomes("j0", queue.Completed)
	assert.Equal(t, 1, s.grants("j0"), "its lease was kept for five leases")
	s.figure("5 leases of CPU under GOMAXPROCS=1, 1 delivery")
}

// A handler that ends its process is a lost worker: the job comes back, and is dead after it took three.
func TestF10HandlerThatEndsItsProcess(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{"exit", "panic", "kill"} {
		t.Run(payload, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, valkeyd.Options{})
			s.add(payload, "")
			for range 3 {
				c := start(t, setup{URL: s.server.URL(), Queue: s.Name(), Concurrency: 1, Lease: 300 * time.Millisecond})
				c.died()
			}
			start(t, setup{URL: s.server.URL(), Queue: s.Name(), Lease: 300 * time.Millisecond})
			dead := s.becomes("j0", queue.Dead)
			assert.Equal(t, queue.ReasonLost, dead.Reason)
			assert.Zero(t, dead.Attempts)
			s.becomes("j1", queue.Completed)
			s.figure("%s: dead after 3 lost workers, the other job completed", payload)
		})
	}
}

// 10 jobs run at the stop; 7 finish within the grace, 3 are put back unspent.
func TestF14StopOfAProcess(t *testing.T) {
	t.Parallel()
	s := newScene(t, valkeyd.Options{})
	for range 7 {
		s.add("sleep 300ms")
	}
	for range 3 {
		s.add("sleep 1h")
	}
	c := start(t, setup{URL: s.server.URL(), Queue: s.Name(), Concurrency: 10, Lease: 10 * time.Second, Grace: 3 * time.Second})
	for range 10 {
		c.next("start")
	}
	begin := time.Now()
	c.signal(syscall.SIGTERM)
	assert.Equal(t, "exit status 0", c.died())
	took := time.Since(begin)
	n, err := s.Counts(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []int64{3, 0, 7}, []int64{n.Wait, n.Active, n.Completed})
	for _, id := range []string{"j7", "j8", "j9"} {
		assert.Zero(t, s.get(id).Attempts)
	}
	s.figure("7 finished, 3 put back, process gone after %v", took.Round(10*time.Millisecond))
}
