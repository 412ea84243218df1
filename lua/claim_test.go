package lua_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/lua"
)

func TestPriorities(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for i, priority := range []int{3, 1, 4, 2, 1, 3, 2, 4} {
		q.enqueue(lua.NewJob{ID: ids(8)[i], Priority: priority, Body: "."})
	}
	want := []string{"j1", "j4", "j3", "j6", "j0", "j5", "j2", "j7"}
	require.Equal(t, want[:3], q.claim(3).IDs)
	require.Equal(t, want[3:], q.claim(9).IDs)
}

// A job that was sent back, handed back or reclaimed keeps its place; one that was retried or deferred goes to the end.
func TestPlaces(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.wait("sent", "handed", "reclaimed", "retried", "deferred", "other")
	q.do("HSET", ":meta", "max", "1", "duration", "1000")
	q.do("SET", ":limiter", "1")
	require.Equal(t, "sent", sentBack(q.claim(1)))
	q.do("HSET", ":meta", "max", "0")
	// All that was sent back has gone to wait under its own place: it is claimed first.
	q.do("ZADD", ":delayed", fmt.Sprint(start+1), "sent")
	q.do("HSET", ":meta", "paused", "1")
	q.clock.Advance(time.Millisecond)
	q.claim(1)
	require.Equal(t, "wait", q.state("sent"))
	q.do("HDEL", ":meta", "paused")

	got := q.claim(5)
	require.Equal(t, []string{"sent", "handed", "reclaimed", "retried", "deferred"}, got.IDs)
	settle := func(id, outcome string) lua.Settlement {
		return lua.Settlement{Outcome: outcome, ID: id, Token: got.Token}
	}
	q.settle(settle("deferred", lua.Defer), settle("retried", lua.Retry))
	q.settle(settle("handed", lua.HandBack), settle("sent", lua.HandBack))
	q.clock.Advance(lease)
	got = q.claim(9)
	require.Equal(t, 1, got.Reclaimed)
	require.Equal(t, []string{"sent", "handed", "reclaimed", "other", "deferred", "retried"}, got.IDs)
	for i, want := range []struct{ attempts, deferrals, reclaims int }{
		{0, 1, 0}, {0, 0, 0}, {0, 0, 1}, {0, 0, 0}, {0, 1, 0}, {1, 0, 0},
	} {
		record, err := lua.ParseRecord(got.Records[i])
		require.NoError(t, err)
		assert.Equal(t, [3]int{want.attempts, want.deferrals, want.reclaims},
			[3]int{record.Attempts, record.Deferrals, record.Reclaims}, got.IDs[i])
		_, stored := q.found(got.IDs[i])
		assert.Equal(t, stored, record)
	}
}

func TestDueJobsGoToTheEndOfTheirPriority(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	late, early, urgent := delayed("late", 2*time.Second), delayed("early", time.Second), delayed("urgent", 2*time.Second)
	urgent.Priority = 1
	at := lua.NewJob{ID: "at", Priority: 2, When: fmt.Sprintf("@%d", start+1500), Body: "."}
	past := lua.NewJob{ID: "past", Priority: 2, When: "@1", Body: "."}
	q.enqueue(late, early, urgent, at, past)
	got := q.claim(9)
	require.Equal(t, []string{"past"}, got.IDs)
	require.Equal(t, time.Second, got.Next)
	q.wait("first", "second")
	q.clock.Advance(2*time.Second - time.Millisecond)
	require.Equal(t, []string{"first", "second", "early", "at"}, q.claim(9).IDs)
	q.clock.Advance(time.Millisecond)
	q.wait("third")
	require.Equal(t, []string{"urgent", "third", "late"}, q.claim(9).IDs)
	last := int64(0)
	for _, id := range []string{"first", "second", "early", "at", "third", "late"} {
		_, record := q.found(id)
		require.Greater(t, record.Place(), last, id)
		last = record.Place()
	}
}

func TestF81RefusedClaimMovesOneJob(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limited("1")
	require.Equal(t, "b", sentBack(q.claim(9)))
	require.Equal(t, [6]int64{1, 1, 1, 1, 0, 0}, q.counts())
	got := q.claim(9)
	require.Equal(t, "limited", got.Word)
	require.Equal(t, "c", sentBack(got))
	require.Equal(t, time.Second, got.Retry)
	got = q.claim(9)
	require.Equal(t, "empty", got.Word)
	require.Empty(t, sentBack(got))
	require.Equal(t, time.Second, got.Next)
	q.clock.Advance(time.Second)
	require.Equal(t, []string{"b"}, q.claim(9).IDs)
}

// What a limit sent back returns as soon as the budget does, however that comes about.
func TestSentBackJobsReturnWithTheBudget(t *testing.T) {
	t.Parallel()
	shared := clocked(t)
	for name, free := range map[string]func(q *queue){
		"raised":           func(q *queue) { require.NoError(q, setLimit(4, "")(q)) },
		"raised elsewhere": func(q *queue) { q.do("HSET", ":meta", "max", "4") },
		"lifted":           func(q *queue) { require.NoError(q, setLimit(0, "")(q)) },
		"lifted elsewhere": func(q *queue) { q.do("HDEL", ":meta", "max") },
		"reset":            func(q *queue) { q.do("DEL", ":limiter"); q.do("HSET", ":meta", "max", "3") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := shared.another(t)
			q.limited("1")
			q.claim(9)
			q.claim(9)
			require.Equal(t, [6]int64{0, 1, 2, 2, 0, 0}, q.counts())
			q.wait("d")
			free(q)
			require.Equal(t, []string{"b", "c", "d"}, q.claim(9).IDs)
			require.Equal(t, [6]int64{0, 4, 0, 0, 0, 0}, q.counts())
		})
	}
}

// When the budget suffices for some of the jobs that were sent back, the others are not judged again before their time.
func TestSentBackJobsAreSentBackOnce(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limited("1")
	q.claim(9)
	q.claim(9)
	q.wait("d")
	q.do("HSET", ":meta", "max", "2")
	got := q.claim(9)
	require.Equal(t, []string{"b"}, got.IDs)
	require.Equal(t, "d", sentBack(got))
	_, record := q.found("c")
	require.Equal(t, 1, record.Deferrals)
	require.Equal(t, []string{"c", "d"}, q.list("ZRANGE :sent 0 -1"))
}

func TestSentBackJobsKeepTheirOrderWhetherDueOrNot(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limited("1")
	q.wait("d", "e")
	require.Equal(t, []string{"a"}, q.claim(9).IDs)
	q.claim(9)
	require.Equal(t, "d", sentBack(q.claim(9)))
	for _, id := range []string{"b", "c"} {
		q.do("ZADD", ":delayed", fmt.Sprint(start), id)
	}
	q.do("HSET", ":meta", "max", "100")
	require.Equal(t, []string{"b", "c", "d"}, q.claim(3).IDs)
	require.Equal(t, []string{"e"}, q.claim(3).IDs)
}

// While the queue is paused jobs still come back, and nothing is judged, sent back or granted.
func TestPausedClaim(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limited("1")
	q.enqueue(delayed("due", time.Second))
	require.Equal(t, "b", sentBack(q.claim(1))+sentBack(q.claim(1)))
	q.do("HSET", ":meta", "paused", "1")
	q.clock.Advance(lease)
	q.wait("d")
	got := q.claim(9)
	require.Equal(t, "paused", got.Word)
	require.Empty(t, got.IDs)
	require.Empty(t, sentBack(got))
	require.Equal(t, 1, got.Reclaimed)
	require.EqualValues(t, -1, got.Next)
	require.Equal(t, [6]int64{5, 0, 0, 0, 0, 0}, q.counts())
	q.do("HSET", ":meta", "paused", "", "max", "0")
	require.Equal(t, []string{"a", "b", "c", "d", "due"}, q.claim(9).IDs)
}

func TestPayloadBound(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	const size = 100 << 10
	for _, id := range ids(7) {
		q.enqueue(lua.NewJob{ID: id, Priority: 2, Body: lua.Body(lua.Header{}, make([]byte, size))})
	}
	for _, want := range [][]string{{"j0", "j1", "j2"}, {"j3", "j4", "j5"}} {
		got := q.claim(9)
		require.Equal(t, want, got.IDs, "the job that passes 256 KiB is the last")
		require.True(t, got.More)
		require.Zero(t, got.Next)
	}
	got := q.claim(9)
	require.Equal(t, []string{"j6"}, got.IDs)
	require.False(t, got.More)
	require.Equal(t, lease, got.Next)
}

func TestBatchBound(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.wait(ids(1100)...)
	require.Len(t, q.claim(100_000).IDs, 1000)
	require.Empty(t, q.claim(-1).IDs)
	require.Len(t, q.claim(1000).IDs, 100)
}

func TestManyDueJobsComeBackInSteps(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	const n, k = 10_000, 10
	for part := range slices.Chunk(ids(n), 1000) {
		jobs := make([]lua.NewJob, len(part))
		for i, id := range part {
			jobs[i] = delayed(id, time.Second)
		}
		q.enqueue(jobs...)
	}
	q.clock.Advance(time.Second)
	granted := 0
	for calls := 1; ; calls++ {
		before := q.counts()[2]
		got := q.claim(k)
		granted += len(got.IDs)
		moved := before - q.counts()[2]
		require.LessOrEqual(t, moved, int64(128))
		if !got.More {
			require.LessOrEqual(t, calls, n/128+2)
			break
		}
		require.Zero(t, got.Next)
		require.Positive(t, moved+int64(len(got.IDs)))
	}
	require.Equal(t, [6]int64{int64(n - granted), int64(granted), 0, 0, 0, 0}, q.counts())
}

func TestManyEndedLeasesComeBackInSteps(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	const n = 1000
	q.wait(ids(n)...)
	require.Len(t, q.claim(n).IDs, n)
	q.clock.Advance(lease)
	reclaimed := 0
	for calls := 1; ; calls++ {
		got := q.claim(0)
		require.LessOrEqual(t, got.Reclaimed, 128)
		if reclaimed += got.Reclaimed; !got.More {
			require.LessOrEqual(t, calls, n/128+2)
			break
		}
	}
	require.Equal(t, n, reclaimed)
	require.Equal(t, ids(n), q.claim(n).IDs)
}

// A job whose record the server lost goes to dead wherever it is met, and costs nothing.
func TestF47MissingRecords(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	crowded(q)
	q.do("HSET", ":meta", "max", "100", "duration", "1000")
	q.do("DEL", ":job:back")
	got := q.claim(100)
	require.Len(t, got.IDs, 11)
	missing := []string{"back", "lost", "lost.active", "lost.due", "sent.lost"}
	require.Equal(t, len(missing)+1, got.Died, "with the poison")
	require.Equal(t, "11", q.text("GET :limiter"))
	entry := q.entries()[0]
	require.Equal(t, "poison", entry["dead"])
	require.ElementsMatch(t, []string{"back", "lost", "lost.active", "lost.due", "sent.lost"}, strings.Fields(entry["missing"]))
	for _, id := range missing {
		f, record := q.found(id)
		assert.Equal(t, "dead", f.State)
		assert.Equal(t, "missing\nthe server lost the record of this job", f.Failure)
		assert.Equal(t, time.UnixMilli(start), f.At)
		assert.Equal(t, time.UnixMilli(start), record.Enqueued)
		assert.Empty(t, record.Payload)
	}
	require.Equal(t, [6]int64{0, 12, 1, 0, 6, 0}, q.counts())
	states, err := redrive(q, missing...)
	require.NoError(t, err)
	require.Equal(t, slices.Repeat([]string{"missing"}, 5), states, "there is nothing to redrive")
	states, err = remove(q, missing...)
	require.NoError(t, err)
	require.Equal(t, slices.Repeat([]string{"dead"}, 5), states)
	require.Equal(t, [6]int64{0, 12, 1, 0, 1, 0}, q.counts())
}

func TestManyMissingRecordsAreMetInSteps(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	const n = 1000
	q.wait(ids(n)...)
	for _, id := range ids(n) {
		q.do("DEL", q.keys.Job(id))
	}
	q.wait("whole")
	for calls := 1; ; calls++ {
		got := q.claim(1)
		require.LessOrEqual(t, got.Died, 2*128+1)
		if len(got.IDs) > 0 {
			require.Equal(t, []string{"whole"}, got.IDs)
			break
		}
		require.True(t, got.More)
		require.LessOrEqual(t, calls, n/128+1)
	}
	require.Equal(t, [6]int64{0, 1, 0, 0, n, 0}, q.counts())
}

// A job whose lease runs out again and again is dead: it may be what its workers are lost by.
func TestPoison(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.wait("poison")
	for lost := range reclaims {
		got := q.claim(1)
		require.Equal(t, []string{"poison"}, got.IDs)
		require.Zero(t, got.Died)
		record, err := lua.ParseRecord(got.Records[0])
		require.NoError(t, err)
		require.Equal(t, lost, record.Reclaims)
		q.clock.Advance(lease - time.Millisecond)
		require.Empty(t, q.claim(1).IDs)
		q.clock.Advance(time.Millisecond)
	}
	got := q.claim(1)
	require.Empty(t, got.IDs)
	require.Zero(t, got.Reclaimed)
	require.Equal(t, 1, got.Died)
	f, record := q.found("poison")
	require.Equal(t, "dead", f.State)
	require.Equal(t, "lost\nworker lost 3 times", f.Failure)
	require.Equal(t, reclaims, record.Reclaims)
	require.Zero(t, record.Attempts)

	states, err := redrive(q, "poison")
	require.NoError(t, err)
	require.Equal(t, []string{"dead"}, states)
	record, err = lua.ParseRecord(q.claim(1).Records[0])
	require.NoError(t, err)
	require.Zero(t, record.Reclaims, "it starts anew")
}

// A job that another lost lease would kill is the last of its batch, so that it takes no others along.
func TestSuspectIsTheLastOfItsBatch(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.wait("a", "suspect", "b", "c")
	q.do("SETRANGE", ":job:suspect", "31", "1")
	c := q.claim(2)
	require.Equal(t, []string{"a", "suspect"}, c.IDs)
	q.settle(lua.Settlement{Outcome: lua.HandBack, ID: "a", Token: c.Token})
	q.clock.Advance(lease)
	q.do("DEL", ":wake")
	c = q.claim(9)
	require.Equal(t, []string{"a", "suspect"}, c.IDs)
	require.True(t, c.More)
	require.EqualValues(t, 1, q.number("LLEN :wake"), "others may go on")
	require.Equal(t, []string{"b", "c"}, q.claim(9).IDs)

	q.clock.Advance(time.Millisecond)
	q.settle(lua.Settlement{Outcome: lua.HandBack, ID: "suspect", Token: c.Token})
	c = q.claim(9)
	require.Equal(t, []string{"suspect"}, c.IDs, "it stays one when it was handed back")
	require.False(t, c.More)
	q.settle(lua.Settlement{Outcome: lua.HandBack, ID: "suspect", Token: c.Token})
	limit("1", "")(q)
	q.wait("d")
	c = q.claim(9)
	require.Equal(t, []string{"suspect"}, c.IDs)
	require.Equal(t, "d", sentBack(c), "the limit is judged as ever")
	require.False(t, c.More)
}

func TestTokens(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.wait("a", "b")
	first, second := q.claim(1), q.claim(1)
	assert.Equal(t, "000000000003-n1", first.Token, "the sequence goes on after the two jobs")
	assert.Equal(t, "000000000004-n2", second.Token)
	assert.Equal(t, []string{"a|" + first.Token, "b|" + second.Token}, q.list("ZRANGE :active 0 -1"))
	assert.Empty(t, q.claim(1).Token, "no job, no token")
}

// late is a connection that gives each call the answer of the call before.
type late struct {
	valkey.Client
	before *valkey.ValkeyResult
}

func (c *late) Do(ctx context.Context, cmd valkey.Completed) valkey.ValkeyResult {
	now := c.Client.Do(ctx, cmd)
	before := c.before
	c.before = &now
	if before == nil {
		return now
	}
	return *before
}

func TestF30AnswerOfAnotherClaimIsRefused(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.wait("a", "b", "c")
	q.claim(1)
	q.client = &late{Client: q.client}
	q.claim(1)
	_, err := q.tryClaim(1)
	assert.ErrorContains(t, err, "-n2\" of another call; the connection is out of step")
}
