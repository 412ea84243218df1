package faults

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

// work runs a worker of the scene's queue until the returned function stops it.
func (s *scene) work(handler worker.Handler) (stop func()) {
	s.Helper()
	w, err := worker.New(s.client, s.Name(), handler, worker.Options{Claim: claim.Options{Lease: 2 * time.Second}})
	require.NoError(s, err)
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(s, w.Run(context.Background())) })
	return func() {
		w.Stop()
		running.Wait()
	}
}

func done(context.Context, *worker.Job) error { return nil }

// With the memory full, enqueues are refused and everything else goes on, so that the fleet drains the queue.
func TestF45MemoryFull(t *testing.T) {
	t.Parallel()
	s := newScene(t, valkeyd.Options{})
	s.add(make([]string, 60)...)
	c := s.claimer(700 * time.Millisecond)
	first, err := c.Claim(t.Context(), 6)
	require.NoError(t, err)
	s.do("CONFIG", "SET", "maxmemory", "1")
	before := s.digest()
	_, err = s.Enqueue(t.Context(), queue.Job{Payload: []byte("x")})
	require.ErrorIs(t, err, queue.ErrStoreFull)
	require.ErrorContains(t, err, "memory")
	assert.Equal(t, before, s.digest(), "nothing is left of it")

	lost, err := c.Extend(t.Context(), first.Jobs)
	require.NoError(t, err, "extend")
	assert.Empty(t, lost)
	j := first.Jobs
	answers, err := c.Settle(t.Context(), []claim.Outcome{claim.Complete(j[0]), claim.Retry(j[1], time.Millisecond, os.ErrInvalid),
		claim.Defer(j[2], time.Millisecond), claim.HandBack(j[3]), claim.DeadLetter(j[4], queue.ReasonDeadLettered, os.ErrInvalid)})
	require.NoError(t, err, "settle")
	for _, a := range answers {
		assert.NoError(t, a)
	}
	_, err = s.SetLimit(t.Context(), limiter.PerSecond(1000), "")
	require.NoError(t, err, "an operator may act")
	stop := s.work(done) // it reclaims the sixth
	s.empty()
	stop()
	n, err := s.Counts(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 60, n.Completed+n.Dead)
	s.figure("enqueue refused (%q), %d jobs drained with maxmemory 1", "memory", n.Completed+n.Dead)
}

// A server that is killed keeps what it acknowledged, and the window its absolute end.
func TestF48F54ServerKilled(t *testing.T) {
	t.Parallel()
	s := newScene(t, valkeyd.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "everysec"}})
	_, err := s.SetLimit(t.Context(), limiter.Limit{Max: 40, Window: 5 * time.Second}, "")
	require.NoError(t, err)
	stop := s.work(done)
	var acknowledged []string
	s.add("")
	s.becomes("j0", queue.Completed)
	opened := time.Now() // within the window of the first claim
	for round := range 3 {
		for i := range 30 {
			id := strconv.Itoa(round) + "-" + strconv.Itoa(i)
			if _, err := s.Enqueue(t.Context(), queue.Job{ID: id, Retain: time.Hour}); err == nil {
				acknowledged = append(acknowledged, id)
			}
		}
		s.server.Kill()
		time.Sleep(100 * time.Millisecond) // down
		require.NoError(t, s.server.Restart())
	}
	s.empty()
	took := time.Since(opened)
	stop()
	for _, id := range acknowledged {
		assert.Equal(t, queue.Completed, s.get(id).State, id)
	}
	assert.Greater(t, took, 9*time.Second, "91 jobs take three windows, whose ends the restarts did not move")
	r := s.judged()
	s.figure("3 kills: %d acknowledged jobs, 0 lost; %d grants, none over or under", len(acknowledged), r.Granted)
}

// A power failure cuts the end of the file off: the server starts, and the jobs of the tail are gone or run again.
func TestF49PowerFailure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newScene(t, valkeyd.Options{Dir: dir, Args: []string{"--appendonly", "yes", "--appendfsync", "everysec"}})
	_, err := s.SetLimit(t.Context(), limiter.PerHour(100_000), "")
	require.NoError(t, err)
	s.add(make([]string, 300)...)
	c := s.claimer(time.Second)
	b, err := c.Claim(t.Context(), 300)
	require.NoError(t, err)
	var outcomes []claim.Outcome
	for _, j := range b.Jobs[:150] {
		outcomes = append(outcomes, claim.Complete(j))
	}
	_, err = c.Settle(t.Context(), outcomes)
	require.NoError(t, err)
	s.server.Kill()
	files, err := filepath.Glob(filepath.Join(dir, "appendonlydir", "*.incr.aof"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	require.NoError(t, os.Truncate(files[0], info.Size()-3000)) // in the last settle
	require.NoError(t, s.server.Restart())
	stop := s.work(done)
	s.empty()
	stop()
	n, err := s.Counts(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 300, n.Completed+n.Dead, "what the tail had settled runs again")
	s.figure("3,000 bytes cut off: 300 jobs of 300 ended, the settles of the tail were done again")
}

// The disk is full: what writes is refused and leaves no trace; when there is room again, all goes on.
func TestF52DiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newScene(t, valkeyd.Options{Dir: dir, Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	s.add("")
	pid := s.server.Pid()
	limit := func(bytes uint64) {
		// The size of the files that the server may write stands in for a disk: what is beyond fails as a full one does.
		require.NoError(t, prlimit(pid, syscall.RLIMIT_FSIZE, bytes))
	}
	limit(1)
	var err error
	until(t, "the server notices", func() bool {
		_, err = s.Enqueue(context.Background(), queue.Job{})
		return err != nil
	})
	_, err = s.Enqueue(t.Context(), queue.Job{})
	if s.gone() { // with fsync always a server that cannot write may end itself
		limit = func(uint64) {}
		require.NoError(t, s.server.Restart())
	} else {
		require.ErrorIs(t, err, queue.ErrStoreFull)
		_, err = s.Counts(t.Context())
		require.NoError(t, err, "reads go on")
		limit(1 << 40)
	}
	until(t, "enqueues are taken again", func() bool {
		_, err := s.Enqueue(context.Background(), queue.Job{Retain: time.Hour})
		return err == nil
	})
	stop := s.work(done)
	s.empty()
	stop()
}

func (s *scene) gone() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return s.client.Do(ctx, s.client.B().Ping().Build()).Error() != nil
}

// Somebody deletes the counter, or everything, while workers run: a fresh window, no panic, and the fleet goes on.
func TestF53KeysThatAreDeleted(t *testing.T) {
	t.Parallel()
	s := newScene(t, valkeyd.Options{})
	const most = 20
	_, err := s.SetLimit(t.Context(), limiter.Limit{Max: most, Window: time.Hour}, "")
	require.NoError(t, err)
	stop := s.work(done)
	s.add(make([]string, 3*most)...)
	completed := func(n int64) {
		t.Helper()
		until(t, "a window's jobs complete", func() bool {
			c, err := s.Counts(t.Context())
			return err == nil && c.Completed == n && c.Active == 0
		})
	}
	completed(most)
	s.do("DEL", s.keys.Limiter())
	completed(2 * most)
	assert.Len(t, s.audit(), len(s.audit()))
	s.do("FLUSHALL")
	_, err = s.Enqueue(t.Context(), queue.Job{ID: "after", Retain: time.Hour})
	require.NoError(t, err)
	s.becomes("after", queue.Completed)
	stop()
	s.figure("a deleted counter admits one more window of %d; after FLUSHALL the fleet goes on", most)
}

// A backup of before is restored: its jobs run again, and a settle of a job that it does not know is refused.
func TestF53RestoredBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newScene(t, valkeyd.Options{Dir: dir})
	s.add("", "")
	s.do("SAVE")
	c := s.claimer(time.Minute)
	b, err := c.Claim(t.Context(), 2)
	require.NoError(t, err)
	_, err = c.Settle(t.Context(), []claim.Outcome{claim.Complete(b.Jobs[0])})
	require.NoError(t, err)
	s.server.Kill()
	require.NoError(t, s.server.Restart())
	answers, err := c.Settle(t.Context(), []claim.Outcome{claim.Complete(b.Jobs[1])})
	require.NoError(t, err)
	require.ErrorIs(t, answers[0], claim.ErrLeaseLost)
	n, err := s.Counts(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 2, n.Wait, "both run again")
	stop := s.work(done)
	s.empty()
	stop()
	s.figure("2 jobs of the backup ran again, the settle of before was refused")
}

// 10^6 jobs fall due in one millisecond: other queues' claims go on meanwhile, and the order is kept.
func TestF82AMillionJobsDueAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute; make faults runs it")
	}
	s, clock := newSceneWithClock(t)
	s.do("HDEL", s.keys.Meta(), "audit")
	const jobs = 1_000_000
	at := time.UnixMilli(clock.Ms()).Add(time.Hour)
	batch := make([]queue.Job, 20_000)
	for i := 0; i < jobs; i += len(batch) {
		for k := range batch {
			batch[k] = queue.Job{Payload: []byte(strconv.Itoa(i + k)), At: at} // the ids that it is given are in order
		}
		_, err := s.EnqueueMany(t.Context(), batch)
		require.NoError(t, err)
	}
	n, err := s.Counts(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, jobs, n.Delayed+n.Wait)
	other := on(t, s.client)
	o := other.claimer(time.Minute)
	clock.Set(at.UnixMilli())
	c := s.claimer(time.Minute)
	var mu sync.Mutex
	var slowest time.Duration
	stop := make(chan struct{})
	var claiming sync.WaitGroup
	claiming.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			begin := time.Now()
			if _, err := o.Claim(t.Context(), 1); err != nil {
				return // the test failed
			}
			mu.Lock()
			slowest = max(slowest, time.Since(begin))
			mu.Unlock()
			time.Sleep(5 * time.Millisecond)
		}
	})
	next := 0
	for next < 20_000 {
		b, err := c.Claim(t.Context(), 500)
		require.NoError(t, err)
		for _, j := range b.Jobs {
			require.Equal(t, strconv.Itoa(next), string(j.Payload), "in the order of their enqueues")
			next++
		}
	}
	close(stop)
	claiming.Wait()
	assert.Less(t, slowest, time.Second, "a server that is held for the whole of them stands still for several") // 10 ms where nothing else runs
	s.figure("20,000 of 1,000,000 granted in order; the slowest claim of another queue meanwhile took %v", slowest.Round(time.Millisecond/10))
}
