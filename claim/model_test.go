package claim_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
)

var (
	sequences = flag.Int("model.sequences", 150, "random sequences of the claim's model test")
	seedFlag  = flag.Uint64("model.seed", 0, "seed of the model test; 0 for a new one")
)

// modelJob is a job as the model sees it.
type modelJob struct {
	id        string
	priority  int
	seq       int64
	state     queue.State
	due       int64 // delayed
	sent      bool  // delayed by the limit
	lease     *claim.Job
	token     string
	end       int64 // active
	attempts  int
	deferrals int
	reclaims  int
	by        queue.DelayedBy
	reason    queue.Reason
}

func (j *modelJob) place() int64 { return int64(j.priority)<<50 + j.seq }

// model is what a queue must do, in plain Go: the whole queue in a map, decided job by job.
type model struct {
	now, seq    int64
	max, window int64
	count, end  int64 // the running window; none when end <= now
	noTTL       bool  // somebody took the window's TTL away
	paused      bool
	jobs        map[string]*modelJob
}

const (
	lease       = 5000
	maxReclaims = 3
)

func (m *model) in(state queue.State, also ...func(*modelJob) bool) []*modelJob {
	var found []*modelJob
	for _, j := range m.jobs {
		if j.state == state && (len(also) == 0 || also[0](j)) {
			found = append(found, j)
		}
	}
	slices.SortFunc(found, func(a, b *modelJob) int { return cmp.Compare(a.place(), b.place()) })
	return found
}

func (m *model) enqueue(id string, priority int, delay int64) bool {
	if m.jobs[id] != nil {
		return false
	}
	m.seq++
	j := &modelJob{id: id, priority: priority, seq: m.seq, state: queue.Wait}
	if delay > 0 {
		j.state, j.due, j.by = queue.Delayed, m.now+delay, queue.ByDelay
	}
	m.jobs[id] = j
	return true
}

// claim returns the ids granted, the job sent back, the retry-after, and whether it stopped at a suspect.
func (m *model) claim(k int) (granted []string, sentBack string, retry int64, more bool) {
	due := m.in(queue.Delayed, func(j *modelJob) bool { return j.due <= m.now })
	slices.SortFunc(due, func(a, b *modelJob) int { return cmp.Or(cmp.Compare(a.due, b.due), strings.Compare(a.id, b.id)) })
	for _, j := range due {
		if !j.sent {
			m.seq++
			j.seq = m.seq
		}
		j.state, j.sent = queue.Wait, false
	}
	for _, j := range m.in(queue.Active, func(j *modelJob) bool { return j.end <= m.now }) {
		j.reclaims++
		j.state = queue.Wait
		if j.reclaims >= maxReclaims {
			j.state, j.reason = queue.Dead, queue.ReasonLost
		}
	}
	left := int64(0)
	free := int64(1) << 60
	if m.max > 0 {
		if m.noTTL || m.end-m.now > m.window {
			m.end, m.noTTL = m.now+m.window, false // the repair, also by a claim that is refused
		}
		if m.end <= m.now {
			m.count = 0
		} else {
			left = m.end - m.now
		}
		free = max(0, m.max-m.count)
	}
	if m.paused {
		return nil, "", 0, false
	}
	suspect := false
	candidates := m.in(queue.Wait)
	if free > 0 {
		candidates = append(candidates, m.in(queue.Delayed, func(j *modelJob) bool { return j.sent })...)
		slices.SortFunc(candidates, func(a, b *modelJob) int { return cmp.Compare(a.place(), b.place()) })
	}
	for _, j := range candidates {
		if free == 0 && j.sent {
			continue
		}
		if free == 0 {
			retry = m.window
			if left > 0 {
				retry = left
			}
			if len(granted) < k {
				sentBack = j.id
				j.state, j.sent, j.due, j.by = queue.Delayed, true, m.now+retry, queue.ByLimit
				j.deferrals++
			}
			break
		}
		if len(granted) == k || suspect {
			more = len(granted) < k
			break
		}
		free--
		suspect = j.reclaims >= maxReclaims-1
		granted = append(granted, j.id)
		j.state, j.sent, j.end = queue.Active, false, m.now+lease
	}
	if n := int64(len(granted)); n > 0 {
		m.seq++ // the token
		if m.max > 0 {
			if left == 0 {
				m.end = m.now + m.window
			}
			m.count += n
		}
	}
	return granted, sentBack, retry, more
}

// world is the model beside the real queue.
type world struct {
	*model
	t       *testing.T
	rnd     *rand.Rand
	clock   *valkeyd.Clock
	client  valkey.Client
	q       *queue.Queue
	claimer *claim.Claimer
	ids     int
	log     []string
}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%6d ", w.now-1_800_000_000_000)+fmt.Sprintf(format, args...))
}

func (w *world) require(cond bool, format string, args ...any) {
	w.t.Helper()
	if !cond {
		w.t.Fatalf(format+"\n%s", append(args, strings.Join(w.log, "\n"))...)
	}
}

func (w *world) key(name string) string { return "emq:{" + w.q.Name() + "}:" + name }

func (w *world) do(args ...string) {
	w.t.Helper()
	require.NoError(w.t, w.client.Do(context.Background(), w.client.B().Arbitrary(args...).Build()).Error())
}

func (w *world) pick(state queue.State) *modelJob {
	jobs := w.in(state)
	if len(jobs) == 0 {
		return nil
	}
	return jobs[w.rnd.IntN(len(jobs))]
}

func (w *world) step() {
	ctx := context.Background()
	t := w.t
	switch n := w.rnd.IntN(100); {
	case n < 18:
		var jobs []queue.Job
		var want []bool
		for range 1 + w.rnd.IntN(4) {
			job := queue.Job{ID: fmt.Sprintf("j%d", w.ids), Priority: queue.Priority(1 + w.rnd.IntN(4)), Payload: []byte{byte(w.ids)}}
			if w.rnd.IntN(8) > 0 {
				w.ids++
			}
			if w.rnd.IntN(3) == 0 {
				job.Delay = time.Duration(1+w.rnd.IntN(3000)) * time.Millisecond
			}
			jobs = append(jobs, job)
			want = append(want, w.enqueue(job.ID, int(job.Priority), job.Delay.Milliseconds()))
			w.note("enqueue %s priority %d delay %v", job.ID, job.Priority, job.Delay)
		}
		answers, err := w.q.EnqueueMany(ctx, jobs)
		require.NoError(t, err)
		for i, a := range answers {
			w.require(errors.Is(a.Err, queue.ErrDuplicate) == !want[i], "enqueue %s: %v, model new: %v", a.ID, a.Err, want[i])
		}
	case n < 50:
		k := w.rnd.IntN(7)
		granted, sentBack, retry, more := w.claim(k)
		w.note("claim %d: %v, sent back %q, retry %d, more %v", k, granted, sentBack, retry, more)
		b, err := w.claimer.Claim(ctx, k)
		require.NoError(t, err)
		var got []string
		for _, job := range b.Jobs {
			j := w.jobs[job.ID]
			got = append(got, job.ID)
			w.require(job.Attempt == j.attempts+1, "attempt of %s is %d, model %d", job.ID, job.Attempt, j.attempts+1)
			w.require(job.Reclaims == j.reclaims && job.Deferrals == j.deferrals, "%s has reclaims %d deferrals %d, model %+v", job.ID, job.Reclaims, job.Deferrals, *j)
			j.lease, j.token = job, job.Token()
		}
		w.require(slices.Equal(got, granted), "granted %v", got)
		w.require(b.SentBack == sentBack, "sent back %q", b.SentBack)
		w.require(b.RetryAfter.Milliseconds() == retry, "retry after %v", b.RetryAfter)
		w.require(b.More == more, "more %v", b.More)
	case n < 66:
		j := w.pick(queue.Active)
		if j == nil {
			return
		}
		alive := j.end > w.now
		var o claim.Outcome
		wait := int64(w.rnd.IntN(2000))
		switch w.rnd.IntN(5) {
		case 0:
			o = claim.Complete(j.lease)
		case 1:
			o = claim.Retry(j.lease, time.Duration(wait)*time.Millisecond, errors.New("failed"))
		case 2:
			o = claim.Defer(j.lease, time.Duration(wait)*time.Millisecond)
		case 3:
			o = claim.HandBack(j.lease)
		case 4:
			o = claim.DeadLetter(j.lease, queue.ReasonDeadLettered, errors.New("given up"))
		}
		w.note("settle %s %s wait %d alive %v", j.id, o.Kind(), wait, alive)
		answers, err := w.claimer.Settle(ctx, []claim.Outcome{o})
		require.NoError(t, err)
		w.require(errors.Is(answers[0], claim.ErrLeaseLost) == !alive, "settle answered %v", answers[0])
		if !alive {
			return
		}
		switch o.Kind() {
		case "complete":
			delete(w.jobs, j.id)
		case "retry":
			j.attempts++
			j.reclaims = 0 // its handler returned: it is none that its workers are lost by
			j.state, j.due, j.by, j.reason = queue.Delayed, w.now+wait, queue.ByRetry, queue.ReasonRetry
		case "defer":
			j.deferrals++
			j.reclaims = 0
			j.state, j.due, j.by = queue.Delayed, w.now+wait, queue.ByDefer
			if j.reason == queue.ReasonRetry {
				j.by = queue.ByRetry
			}
		case "back":
			j.state = queue.Wait
		case "dead":
			j.attempts++
			j.state, j.reason = queue.Dead, queue.ReasonDeadLettered
		}
	case n < 70:
		j := w.pick(queue.Active)
		if j == nil {
			return
		}
		alive := j.end > w.now
		w.note("extend %s alive %v", j.id, alive)
		lost, err := w.claimer.Extend(ctx, []*claim.Job{j.lease})
		require.NoError(t, err)
		w.require((len(lost) == 1) == !alive, "extend lost %v", lost)
		if alive {
			j.end = w.now + lease
		}
	case n < 88:
		var by int64
		switch w.rnd.IntN(4) {
		case 0:
			by = int64(w.rnd.IntN(50))
		case 1:
			if !w.noTTL {
				by = max(0, w.end-w.now) + int64(w.rnd.IntN(3)) - 1
			}
		case 2:
			by = int64(w.rnd.IntN(int(3 * w.window)))
		case 3:
			by = int64(w.rnd.IntN(lease * 3 / 2))
		}
		w.now += max(0, by)
		w.clock.Set(w.now)
		w.note("advance %d", by)
	case n < 92:
		maxes, windows := []int64{1, 2, 3, 5, 8, 1000}, []int64{1, 10, 300, 1000, 2500}
		max, window := maxes[w.rnd.IntN(len(maxes))], windows[w.rnd.IntN(len(windows))]
		if w.rnd.IntN(2) == 0 {
			w.note("HSET max %d duration %d", max, window)
			w.do("HSET", w.key("meta"), "max", fmt.Sprint(max), "duration", fmt.Sprint(window))
		} else {
			w.note("set limit %d/%dms", max, window)
			_, err := w.q.SetLimit(ctx, limiter.Limit{Max: max, Window: time.Duration(window) * time.Millisecond}, "test")
			require.NoError(t, err)
			if !w.noTTL && w.end-w.now > window {
				w.end = w.now + window
			}
		}
		w.max, w.window = max, window
	case n < 93:
		w.note("lift limit")
		_, err := w.q.LiftLimit(ctx, "test")
		require.NoError(t, err)
		w.max, w.window = 0, 1000
	case n < 94:
		if w.end > w.now && !w.noTTL {
			w.note("persist limiter")
			w.do("PERSIST", w.key("limiter"))
			w.noTTL, w.end = true, 1<<60
		}
	case n < 95:
		w.note("del limiter")
		w.do("DEL", w.key("limiter"))
		w.end, w.count, w.noTTL = 0, 0, false
	case n < 97:
		w.paused = !w.paused
		w.note("paused %v", w.paused)
		var err error
		if w.paused {
			_, err = w.q.Pause(ctx, "test")
		} else {
			_, err = w.q.Resume(ctx, "test")
		}
		require.NoError(t, err)
	case n < 98:
		if j := w.pick(queue.Delayed); j != nil {
			w.note("run %s", j.id)
			require.NoError(t, w.q.RunNow(ctx, j.id))
			if !j.sent {
				w.seq++
				j.seq = w.seq
			}
			j.state, j.sent = queue.Wait, false
		}
	case n < 99:
		states := []queue.State{queue.Wait, queue.Delayed, queue.Dead, queue.Active}
		if j := w.pick(states[w.rnd.IntN(4)]); j != nil {
			w.note("delete %s", j.id)
			err := w.q.Delete(ctx, j.id)
			w.require(errors.Is(err, queue.ErrWrongState) == (j.state == queue.Active), "delete: %v", err)
			if j.state != queue.Active {
				delete(w.jobs, j.id)
			}
		}
	default:
		if j := w.pick(queue.Dead); j != nil {
			w.note("redrive %s", j.id)
			require.NoError(t, w.q.Redrive(ctx, j.id))
			w.seq++
			j.seq = w.seq
			j.state, j.attempts, j.reclaims, j.reason = queue.Wait, 0, 0, ""
		}
	}
}

// compare holds the whole queue against the whole model: no job is lost, each is in one state, waiting jobs are in order.
func (w *world) compare() {
	ctx := context.Background()
	seen := 0
	for _, state := range []queue.State{queue.Wait, queue.Delayed, queue.Active, queue.Dead} {
		page, err := w.q.List(ctx, state, 0, 1000)
		require.NoError(w.t, err)
		want := w.in(state)
		w.require(len(page) == len(want), "%s: %d jobs, model %d", state, len(page), len(want))
		seen += len(page)
		for i, s := range page {
			j := w.jobs[s.ID]
			w.require(j != nil && j.state == state, "%s holds %s", state, s.ID)
			if state == queue.Wait {
				w.require(want[i].id == s.ID, "wait[%d] is %s, model %s", i, s.ID, want[i].id)
			}
			w.require(s.Attempts == j.attempts && s.Deferrals == j.deferrals && s.Reclaims == j.reclaims,
				"%s has attempts %d deferrals %d reclaims %d, model %+v", s.ID, s.Attempts, s.Deferrals, s.Reclaims, *j)
			switch state {
			case queue.Delayed:
				w.require(s.DueAt.UnixMilli() == j.due, "%s due %d, model %d", s.ID, s.DueAt.UnixMilli(), j.due)
				w.require((s.DelayedBy == queue.ByLimit) == j.sent, "%s delayed by %s, model sent %v", s.ID, s.DelayedBy, j.sent)
			case queue.Active:
				w.require(s.LeaseEnd.UnixMilli() == j.end, "%s lease ends %d, model %d", s.ID, s.LeaseEnd.UnixMilli(), j.end)
			case queue.Dead:
				w.require(s.Reason == j.reason, "%s is dead by %s, model %s", s.ID, s.Reason, j.reason)
			}
		}
	}
	w.require(seen == len(w.jobs), "%d jobs, model %d", seen, len(w.jobs))
	if j := w.jobs[fmt.Sprintf("j%d", w.rnd.IntN(w.ids+1))]; j != nil {
		s, err := w.q.Get(ctx, j.id)
		require.NoError(w.t, err)
		w.require(s.State == j.state, "%s is %s, model %s", j.id, s.State, j.state)
	}
}

func TestClaimAgreesWithItsModel(t *testing.T) {
	t.Parallel()
	server, clock, err := valkeyd.StartWithClock(valkeyd.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client, err := valkey.NewClient(server.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)

	clock.Set(1_800_000_000_000)
	now := clock.Ms()
	for n := range *sequences {
		name := fmt.Sprintf("model-%d", n)
		q, err := queue.New(client, name, queue.Options{})
		require.NoError(t, err)
		claimer, err := claim.New(client, name, claim.Options{Lease: lease * time.Millisecond, MaxReclaims: maxReclaims})
		require.NoError(t, err)
		w := &world{
			model: &model{now: now, window: 1000, jobs: map[string]*modelJob{}}, t: t, rnd: rand.New(rand.NewPCG(seed, uint64(n))),
			clock: clock, client: client, q: q, claimer: claimer,
		}
		w.note("sequence %d", n)
		for range 80 {
			w.step()
			w.compare()
		}
		now = w.now
	}
}
