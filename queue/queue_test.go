package queue_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/queue"
)

var ctx = context.Background()

func newQueue(t *testing.T) *queue.Queue {
	t.Helper()
	q, err := queue.New(emqtest.Client(t), emqtest.Queue(t), queue.Options{})
	require.NoError(t, err)
	return q
}

func newClaimer(t *testing.T, q *queue.Queue) *claim.Claimer {
	t.Helper()
	c, err := claim.New(emqtest.Client(t), q.Name(), claim.Options{})
	require.NoError(t, err)
	return c
}

func claimed(t *testing.T, c *claim.Claimer, k int) []*claim.Job {
	t.Helper()
	b, err := c.Claim(ctx, k)
	require.NoError(t, err)
	return b.Jobs
}

func digest(t *testing.T, c valkey.Client) string {
	t.Helper()
	d, err := c.Do(ctx, c.B().Arbitrary("DEBUG", "DIGEST").Build()).ToString()
	require.NoError(t, err)
	return d
}

func TestWhatGoesInComesOut(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	random := make([]byte, queue.DefaultMaxPayload)
	_, _ = rand.Read(random)
	payloads := [][]byte{
		nil, {}, []byte("\x00\r\n\x00"), {0xff, 0xfe}, []byte("🐝🐝"), random, []byte(`{"n":12345678901234567890}`),
		[]byte("n3:abc."), []byte("."), []byte(strings.Repeat("[", 100_000)),
	}
	job := queue.Job{
		Name: "mail", Priority: queue.Low, Keys: map[string]string{"tenant": "a=b {c}:\n", "chat": ""}, Cost: map[string]int64{"tokens": queue.MaxCost, "x": 0},
		MaxAttempts: 7, Timeout: 5 * time.Second, StartBy: 3 * time.Second, Retain: time.Hour,
	}
	for _, payload := range payloads {
		job.Payload = payload
		id, err := q.Enqueue(ctx, job)
		require.NoError(t, err)
		parsed, err := uuid.Parse(id)
		require.NoError(t, err)
		require.EqualValues(t, 7, parsed.Version())
		s, err := q.Get(ctx, id)
		require.NoError(t, err)
		require.True(t, bytes.Equal(payload, s.Payload))
		want := job
		want.ID, want.Payload = id, s.Payload
		require.Equal(t, want, s.Job)
		require.Equal(t, queue.Wait, s.State)
		require.WithinDuration(t, time.Now(), s.EnqueuedAt, time.Minute)
	}
	c := newClaimer(t, q)
	for _, payload := range payloads {
		jobs := claimed(t, c, 1)
		require.Len(t, jobs, 1)
		require.True(t, bytes.Equal(payload, jobs[0].Payload))
		require.Equal(t, job.Keys, jobs[0].Keys)
		require.Equal(t, job.Cost, jobs[0].Cost)
	}
}

func TestF25SecondEnqueueOfAnIDChangesNothing(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	c := newClaimer(t, q)
	job := queue.Job{ID: "order-1", Payload: []byte("first"), Retain: time.Hour}
	id, err := q.Enqueue(ctx, job)
	require.NoError(t, err)
	require.Equal(t, "order-1", id)

	again := func(state queue.State) {
		t.Helper()
		id, err := q.Enqueue(ctx, queue.Job{ID: "order-1", Payload: []byte("second"), Delay: time.Hour})
		require.ErrorIs(t, err, queue.ErrDuplicate)
		require.Equal(t, "order-1", id)
		s, err := q.Get(ctx, "order-1")
		require.NoError(t, err)
		require.Equal(t, state, s.State)
		require.Equal(t, "first", string(s.Payload))
	}
	again(queue.Wait)
	jobs := claimed(t, c, 1)
	again(queue.Active)
	_, err = c.Settle(ctx, []claim.Outcome{claim.Defer(jobs[0], time.Minute)})
	require.NoError(t, err)
	again(queue.Delayed)
	require.NoError(t, q.RunNow(ctx, "order-1"))
	_, err = c.Settle(ctx, []claim.Outcome{claim.DeadLetter(claimed(t, c, 1)[0], queue.ReasonDeadLettered, errors.New("x"))})
	require.NoError(t, err)
	again(queue.Dead)
	require.NoError(t, q.Redrive(ctx, "order-1"))
	_, err = c.Settle(ctx, []claim.Outcome{claim.Complete(claimed(t, c, 1)[0])})
	require.NoError(t, err)
	again(queue.Completed)
	require.NoError(t, q.Delete(ctx, "order-1"))
	_, err = q.Enqueue(ctx, job)
	require.NoError(t, err, "a deleted job's id is free")
}

func TestBulkAnswersForEachJob(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	jobs := make([]queue.Job, 2500)
	for i := range jobs {
		jobs[i] = queue.Job{ID: fmt.Sprint("j", i), Payload: make([]byte, 4000)}
	}
	jobs[1700].ID = "j3"
	answers, err := q.EnqueueMany(ctx, jobs)
	require.NoError(t, err)
	require.Len(t, answers, 2500)
	for i, a := range answers {
		require.Equal(t, jobs[i].ID, a.ID)
		require.Equal(t, i == 1700, errors.Is(a.Err, queue.ErrDuplicate), "%d: %v", i, a.Err)
	}
	counts, err := q.Counts(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 2499, counts.Wait)
	page, err := q.List(ctx, queue.Wait, 1698, 3)
	require.NoError(t, err)
	require.Equal(t, []string{"j1698", "j1699", "j1701"}, []string{page[0].ID, page[1].ID, page[2].ID})

	before, err := q.Counts(ctx)
	require.NoError(t, err)
	_, err = q.EnqueueMany(ctx, []queue.Job{{}, {Priority: 9}})
	require.ErrorContains(t, err, "job 1: ")
	require.ErrorIs(t, err, queue.ErrBadJob)
	after, err := q.Counts(ctx)
	require.NoError(t, err)
	require.Equal(t, before.Wait, after.Wait, "one bad job refuses the whole call")
	answers, err = q.EnqueueMany(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, answers)
}

func TestBadInputIsNamedAndChangesNothing(t *testing.T) {
	t.Parallel()
	server, err := valkeyd.Start(valkeyd.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client, err := valkey.NewClient(server.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	q, err := queue.New(client, "q", queue.Options{MaxPayload: 10})
	require.NoError(t, err)
	before := digest(t, client)
	many := map[string]string{}
	costs := map[string]int64{}
	for i := range queue.MaxKeys + 1 {
		many[fmt.Sprint(i)], costs[fmt.Sprint(i)] = "", 1
	}
	for name, c := range map[string]struct {
		job  queue.Job
		is   error
		says string
	}{
		"id with a brace":   {queue.Job{ID: "y}:meta"}, queue.ErrBadName, `job id "y}:meta"`},
		"id with a colon":   {queue.Job{ID: "a:b"}, queue.ErrBadName, "A-Z"},
		"id too long":       {queue.Job{ID: strings.Repeat("x", 129)}, queue.ErrBadName, "128"},
		"name":              {queue.Job{Name: "a b"}, queue.ErrBadName, "job name"},
		"payload":           {queue.Job{Payload: make([]byte, 11)}, queue.ErrPayloadTooLarge, "11 bytes"},
		"priority":          {queue.Job{Priority: 5}, queue.ErrBadJob, "priority 5"},
		"negative priority": {queue.Job{Priority: -1}, queue.ErrBadJob, "priority -1"},
		"delay":             {queue.Job{Delay: queue.MaxDelay + 1}, queue.ErrBadJob, "ten years"},
		"at":                {queue.Job{At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, queue.ErrBadJob, "ten years"},
		"delay and at":      {queue.Job{At: time.Now(), Delay: 1}, queue.ErrBadJob, "both"},
		"attempts":          {queue.Job{MaxAttempts: -1}, queue.ErrBadJob, "max attempts -1"},
		"too many attempts": {queue.Job{MaxAttempts: 4096}, queue.ErrBadJob, "4095"},
		"time-out":          {queue.Job{Timeout: -1}, queue.ErrBadJob, "time-out"},
		"start-by":          {queue.Job{StartBy: -1}, queue.ErrBadJob, "start-by"},
		"retain":            {queue.Job{Retain: -1}, queue.ErrBadJob, "retain"},
		"key name":          {queue.Job{Keys: map[string]string{"a=b": ""}}, queue.ErrBadName, "key name"},
		"key value":         {queue.Job{Keys: map[string]string{"a": "\xff"}}, queue.ErrBadJob, "UTF-8"},
		"long key value":    {queue.Job{Keys: map[string]string{"a": strings.Repeat("x", 257)}}, queue.ErrBadJob, "257"},
		"too many keys":     {queue.Job{Keys: many}, queue.ErrBadJob, "17 keys"},
		"cost name":         {queue.Job{Cost: map[string]int64{"": 1}}, queue.ErrBadName, "cost name"},
		"negative cost":     {queue.Job{Cost: map[string]int64{"t": -1}}, queue.ErrBadJob, "-1"},
		"cost above 2^53-1": {queue.Job{Cost: map[string]int64{"t": math.MaxInt64}}, queue.ErrBadJob, "9007199254740991"},
		"too many costs":    {queue.Job{Cost: costs}, queue.ErrBadJob, "17 costs"},
	} {
		_, err := q.Enqueue(ctx, c.job)
		require.ErrorIs(t, err, c.is, name)
		require.ErrorContains(t, err, c.says, name)
	}
	for _, bad := range []string{"", "a b", "{q}", "q:x", "ü", strings.Repeat("x", 129), "*"} {
		_, err := queue.New(client, bad, queue.Options{})
		require.ErrorIs(t, err, queue.ErrBadName, "%q", bad)
	}
	_, err = queue.New(client, "q", queue.Options{MaxPayload: -1})
	require.ErrorContains(t, err, "MaxPayload")
	_, err = queue.New(nil, "q", queue.Options{})
	require.ErrorContains(t, err, "client")
	for _, l := range []limiter.Limit{{}, {Max: -1}, {Max: 1 << 53}, {Max: 1, Window: -1}, {Max: 1, Window: 1500 * time.Microsecond}, {Max: 1, Algorithm: "magic"}} {
		_, err := q.SetLimit(ctx, l, "")
		require.ErrorIs(t, err, limiter.ErrBadLimit, "%+v", l)
	}
	_, err = q.List(ctx, "lost", 0, 1)
	require.ErrorContains(t, err, `"lost"`)
	_, err = q.List(ctx, queue.Wait, 0, 1001)
	require.ErrorContains(t, err, "1001")
	_, err = q.List(ctx, queue.Wait, -1, 1)
	require.ErrorContains(t, err, "-1")
	for _, call := range []func(context.Context, string) error{q.RunNow, q.Redrive, q.Delete} {
		require.ErrorIs(t, call(ctx, "a:b"), queue.ErrBadName)
	}
	// Only the note of the queue's name and the first layout mark may have come from calls that passed their checks.
	require.NoError(t, client.Do(ctx, client.B().Del().Key(lua.Queues).Build()).Error())
	require.Equal(t, before, digest(t, client))
}

func TestF94Delays(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	c := newClaimer(t, q)
	for id, job := range map[string]queue.Job{
		"past": {Delay: -time.Hour}, "at-past": {At: time.Unix(1, 0)}, "long-past": {At: time.Date(-100, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		job.ID = id
		_, err := q.Enqueue(ctx, job)
		require.NoError(t, err)
		require.Equal(t, id, claimed(t, c, 1)[0].ID, "a delay in the past means now")
	}
	_, err := q.Enqueue(ctx, queue.Job{ID: "soon", Delay: 500 * time.Millisecond})
	require.NoError(t, err)
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	_, err = q.Enqueue(ctx, queue.Job{ID: "later", At: at})
	require.NoError(t, err)
	b, err := c.Claim(ctx, 5)
	require.NoError(t, err)
	require.Empty(t, b.Jobs)
	require.Positive(t, b.Next)
	require.LessOrEqual(t, b.Next, 500*time.Millisecond)
	s, err := q.Get(ctx, "later")
	require.NoError(t, err)
	require.Equal(t, queue.Delayed, s.State)
	require.Equal(t, queue.ByDelay, s.DelayedBy)
	require.True(t, at.Equal(s.DueAt))
	require.Eventually(t, func() bool { jobs := claimed(t, c, 5); return len(jobs) == 1 && jobs[0].ID == "soon" }, time.Minute, time.Millisecond)
}

func TestDeadJobsAreRedrivenOrDeletedByReason(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	c := newClaimer(t, q)
	const n = 1200
	_, err := q.EnqueueMany(ctx, make([]queue.Job, n))
	require.NoError(t, err)
	for done := 0; done < n; {
		var outcomes []claim.Outcome
		for _, job := range claimed(t, c, 400) {
			reason := queue.ReasonAttempts
			if done%3 == 0 {
				reason = queue.ReasonDeadLettered
			}
			outcomes = append(outcomes, claim.DeadLetter(job, reason, errors.New("x")))
			done++
		}
		_, err := c.Settle(ctx, outcomes)
		require.NoError(t, err)
	}
	redriven, err := q.RedriveDead(ctx, queue.ReasonDeadLettered)
	require.NoError(t, err)
	require.EqualValues(t, n/3, redriven)
	counts, err := q.Counts(ctx)
	require.NoError(t, err)
	require.EqualValues(t, n/3, counts.Wait)
	require.EqualValues(t, n-n/3, counts.Dead)
	deleted, err := q.DeleteDead(ctx, queue.ReasonLost)
	require.NoError(t, err)
	require.Zero(t, deleted)
	deleted, err = q.DeleteDead(ctx, "")
	require.NoError(t, err)
	require.EqualValues(t, n-n/3, deleted)
	job := claimed(t, c, 1)[0]
	require.Equal(t, 1, job.Attempt, "a redriven job has all its attempts again")

	drained, err := q.Drain(ctx, false)
	require.NoError(t, err)
	require.EqualValues(t, n/3-1, drained)
	require.ErrorIs(t, q.Delete(ctx, job.ID), queue.ErrWrongState)
	require.ErrorIs(t, q.Redrive(ctx, job.ID), queue.ErrWrongState)
	require.ErrorIs(t, q.RunNow(ctx, job.ID), queue.ErrWrongState)
	require.ErrorIs(t, q.Delete(ctx, "nobody"), queue.ErrNotFound)
	_, err = q.Get(ctx, "nobody")
	require.ErrorIs(t, err, queue.ErrNotFound)
}

func TestLimitIsSetChangedAndLifted(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	limit, err := q.Limit(ctx)
	require.NoError(t, err)
	require.Equal(t, "unlimited", limit.String())
	before, err := q.SetLimit(ctx, limiter.PerMinute(60), "first")
	require.NoError(t, err)
	require.Zero(t, before.Max)
	before, err = q.SetLimit(ctx, limiter.Limit{Max: 100}, "more")
	require.NoError(t, err)
	require.Equal(t, "60/1m0s", before.String())
	limit, err = q.Limit(ctx)
	require.NoError(t, err)
	require.Equal(t, "100/1m0s", limit.String(), "a window left out keeps its value")
	before, err = q.LiftLimit(ctx, "enough")
	require.NoError(t, err)
	require.Equal(t, "100/1m0s", before.String())
	limit, err = q.Limit(ctx)
	require.NoError(t, err)
	require.Zero(t, limit.Max)

	was, err := q.Pause(ctx, "lunch")
	require.NoError(t, err)
	require.False(t, was)
	_, err = q.Enqueue(ctx, queue.Job{})
	require.NoError(t, err)
	b, err := newClaimer(t, q).Claim(ctx, 1)
	require.NoError(t, err)
	require.True(t, b.Paused)
	require.Empty(t, b.Jobs)
	was, err = q.Resume(ctx, "back")
	require.NoError(t, err)
	require.True(t, was)
	require.Len(t, claimed(t, newClaimer(t, q), 1), 1)
}

func TestF46ServersThatAQueueCannotBeKeptOn(t *testing.T) {
	t.Parallel()
	server, err := valkeyd.Start(valkeyd.Options{Args: []string{"--maxmemory", "64mb", "--maxmemory-policy", "volatile-lru"}})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client, err := valkey.NewClient(server.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	q, err := queue.New(client, "q", queue.Options{})
	require.NoError(t, err)
	_, err = q.Enqueue(ctx, queue.Job{})
	require.ErrorIs(t, err, queue.ErrEvicts)
	require.ErrorContains(t, err, "volatile-lru")
	allowed, err := queue.New(client, "q", queue.Options{AllowEviction: true})
	require.NoError(t, err)
	_, err = allowed.Enqueue(ctx, queue.Job{})
	require.NoError(t, err)

	config := func(args ...string) {
		t.Helper()
		require.NoError(t, client.Do(ctx, client.B().Arbitrary("CONFIG", "SET").Args(args...).Build()).Error())
	}
	config("maxmemory-policy", "noeviction", "maxmemory", "1")
	before := digest(t, client)
	_, err = q.Enqueue(ctx, queue.Job{})
	require.ErrorIs(t, err, queue.ErrStoreFull)
	require.ErrorContains(t, err, "memory")
	require.Equal(t, before, digest(t, client))
	c, err := claim.New(client, "q", claim.Options{})
	require.NoError(t, err)
	jobs := claimed(t, c, 1)
	require.Len(t, jobs, 1, "with memory full the fleet drains the queue")
	_, err = c.Extend(ctx, jobs)
	require.NoError(t, err)
	answers, err := c.Settle(ctx, []claim.Outcome{claim.Complete(jobs[0])})
	require.NoError(t, err)
	require.NoError(t, answers[0])

	config("maxmemory", "0", "min-replicas-to-write", "3")
	_, err = q.Enqueue(ctx, queue.Job{})
	require.ErrorIs(t, err, queue.ErrUnavailable)
	config("min-replicas-to-write", "0")
	_, err = q.Enqueue(ctx, queue.Job{})
	require.NoError(t, err)
}
