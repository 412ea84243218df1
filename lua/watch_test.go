package lua_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

const (
	often = 800 * time.Millisecond  // the deputy looks
	turn  = 2500 * time.Millisecond // from look to look of the others
	never = time.Duration(-1)
)

func (q *queue) claimAs(process string, k int) lua.Claimed {
	q.Helper()
	q.calls++
	c, err := lua.Claim(q.ctx(), q.client, q.keys, process, "n"+strconv.Itoa(q.calls), k, lease, reclaims)
	require.NoError(q, err)
	return c
}

func (q *queue) look(process, stance string, push int) lua.Looked {
	q.Helper()
	l, err := lua.Look(q.ctx(), q.client, q.keys, process, stance, true, push)
	require.NoError(q, err)
	return l
}

// roles are the holder and the deputy.
func (q *queue) roles() string {
	s := q.hash(":state")
	return s["holder"] + " " + s["deputy"]
}

func (q *queue) tokens() int64 { return q.number("LLEN :wake") }

// overdue makes work wait for longer than a wake-up may take, with nobody on the way to it.
func (q *queue) overdue() {
	q.wait(fmt.Sprint("late", q.now()))
	q.do("DEL", ":wake")
	q.clock.Advance(21 * time.Millisecond)
}

// Of a fleet two processes have timers: one for what comes next, one in case that it dies. The rest look in turns.
func TestRoles(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.enqueue(delayed("a", time.Minute))
	require.Equal(t, lua.Timers{Claim: time.Minute, Look: often}, q.claimAs("x", 1).Timers, "alone")
	require.Equal(t, lua.Timers{Claim: never, Look: often}, q.claimAs("y", 1).Timers)
	require.Equal(t, lua.Timers{Claim: never, Look: never}, q.claimAs("z", 1).Timers)
	require.Equal(t, "x y", q.roles())
	require.Equal(t, lua.Timers{Claim: time.Minute, Look: never}, q.claimAs("x", 1).Timers)
	require.Equal(t, lua.Timers{Claim: never, Look: never}, q.claimAs("", 1).Timers, "one that does not watch")

	q.enqueue(delayed("b", time.Second))
	require.Equal(t, lua.Timers{Claim: time.Second, Look: never}, q.claimAs("z", 1).Timers, "an earlier one takes it over")
	require.Equal(t, "z y", q.roles())
	require.Equal(t, never, q.claimAs("x", 1).Timers.Claim)
	q.clock.Advance(time.Second)
	require.Equal(t, []string{"b"}, q.claimAs("u", 1).IDs)
	require.Equal(t, "u y", q.roles(), "an alarm that is past belongs to who comes")
	q.clock.Advance(900 * time.Millisecond)
	q.look("y", lua.Idle, 0)
	require.Equal(t, lease-900*time.Millisecond, q.claimAs("u", 1).Timers.Claim, "it stays with its holder")
	q.clock.Advance(900 * time.Millisecond)
	q.look("y", lua.Idle, 0)
	require.Equal(t, lease-1800*time.Millisecond, q.look("u", lua.Busy, 0).Timers.Claim)

	q.clock.Advance(2 * time.Second)
	require.Equal(t, "u y", q.roles())
	q.claimAs("v", 1)
	require.Equal(t, "u v", q.roles(), "the deputy has not been heard of for two seconds")
	q.clock.Advance(1600 * time.Millisecond)
	q.look("v", lua.Idle, 0)
	q.clock.Advance(1600 * time.Millisecond)
	q.claimAs("w", 1)
	require.Equal(t, "u v", q.roles(), "whoever looks keeps its role")

	q.clock.Advance(-time.Hour)
	q.claimAs("s", 1)
	require.Equal(t, "s s", q.roles(), "an end that the clock has stepped back from is none")
	q.claimAs("t", 1)
	require.Equal(t, "s t", q.roles(), "the holder leaves the other role to the next")
}

// Those without a role look in turns, at a pace of the fleet and not of each; a claim does not put off the turn of its process.
func TestTurns(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.claimAs("x", 1)
	for n, p := range []string{"a", "b", "c", "d", "a"} {
		require.Equal(t, time.Duration(n+1)*turn, q.look(p, lua.Idle, 0).Timers.Look)
		require.Equal(t, never, q.claimAs(p, 1).Timers.Look)
		q.look("x", lua.Idle, 0) // the deputy's looks are no turns
		l, err := lua.Look(q.ctx(), q.client, q.keys, p, lua.Busy, false, 1)
		require.NoError(t, err)
		require.Equal(t, never, l.Timers.Look, "nor are those for another reason")
	}
	q.clock.Advance(time.Minute)
	q.look("x", lua.Idle, 0)
	require.Equal(t, turn, q.look("b", lua.Idle, 0).Timers.Look)
	q.wait("j")
	require.Equal(t, 21*time.Millisecond, q.look("c", lua.Idle, 0).Timers.Look, "somebody is on the way to the job")
	require.Equal(t, []string{"j"}, q.claimAs("d", 1).IDs)
	require.Equal(t, 2*turn, q.look("c", lua.Idle, 0).Timers.Look, "that was no turn")
	q.do("HSET", ":state", "net", fmt.Sprint(q.now()+600_001))
	require.Equal(t, turn, q.look("b", lua.Idle, 0).Timers.Look, "a turn that the clock has stepped back from is none")
}

// A process that leaves wakes another one to take its part.
func TestLeavingTheWatch(t *testing.T) {
	t.Parallel()
	shared := clocked(t)
	for p, left := range map[string]string{"x": " y", "y": "x ", "z": "x y"} {
		q := shared.another(t)
		q.enqueue(delayed("a", time.Minute))
		for _, p := range []string{"x", "y", "z"} {
			q.claimAs(p, 1)
		}
		q.do("DEL", ":wake")
		require.Equal(t, lua.Timers{Claim: never, Look: never}, q.look(p, lua.Leaving, 0).Timers)
		require.Equal(t, left, q.roles())
		require.EqualValues(t, map[bool]int{true: 1}[p != "z"], q.tokens())
		q.claimAs("u", 1)
		require.NotContains(t, q.roles()[:1]+q.roles()[2:], map[string]string{"x": "x", "y": "y", "z": "z"}[p])
	}
}

// Work that nobody answers for is seen to by whoever looks: it claims, or has others woken where it cannot.
func TestLooksSeeToWorkThatNobodyAnswersFor(t *testing.T) {
	t.Parallel()
	shared := clocked(t)
	fresh := func() *queue {
		q := shared.another(t)
		for _, p := range []string{"y", "z"} {
			q.claimAs(p, 1)
		}
		return q
	}
	q := fresh()
	q.wait("a")
	q.do("DEL", ":wake") // a process has taken it
	require.Equal(t, lua.Looked{Next: 0, Timers: lua.Timers{Claim: -1, Look: 21 * time.Millisecond}}, q.look("y", lua.Idle, 0), "it may be on its way")
	require.EqualValues(t, 0, q.tokens())
	require.EqualValues(t, 0, q.look("y", lua.Busy, 1).Pushed)
	require.EqualValues(t, 1, q.tokens(), "one that the caller took is passed on")
	require.Equal(t, []string{"a"}, q.claimAs("u", 1).IDs)
	require.Equal(t, "0", q.hash(":state")["want"], "a claim is the answer")
	require.EqualValues(t, 0, q.tokens(), "and nobody else need come")

	q = fresh()
	q.overdue()
	l := q.look("y", lua.Idle, 0)
	require.True(t, l.Claim)
	require.Zero(t, l.Pushed)
	require.EqualValues(t, 0, q.tokens())
	for _, push := range []int{0, 2, 4, 64, 128} {
		q.do("DEL", ":wake")
		l := q.look("y", lua.Busy, push)
		require.Equal(t, lua.Looked{Next: 0, Pushed: min(64, max(1, push)), Timers: lua.Timers{Claim: -1, Look: 100 * time.Millisecond}}, l)
		require.EqualValues(t, l.Pushed, q.tokens())
	}
	require.Equal(t, lua.Looked{Next: 0, Timers: lua.Timers{Claim: -1, Look: often}}, q.look("y", lua.Busy, 8), "nobody takes them: all are busy")

	q = fresh()
	require.NoError(t, setLimit(1, "60000")(q))
	q.wait("b", "c")
	q.claimAs("u", 2)
	require.False(t, q.look("y", lua.Idle, 0).Claim)
	q.do("HSET", ":meta", "max", "2")
	require.True(t, q.look("y", lua.Idle, 0).Claim, "another runtime raised the cap")

	q = fresh()
	q.enqueue(delayed("d", time.Second))
	q.claimAs("x", 1)
	q.do("DEL", ":wake")
	q.clock.Advance(time.Second)
	require.Equal(t, lua.Looked{Next: 0, Timers: lua.Timers{Claim: -1, Look: 21 * time.Millisecond}}, q.look("y", lua.Idle, 0), "its holder is about to claim")
	q.clock.Advance(21 * time.Millisecond)
	require.True(t, q.look("y", lua.Idle, 0).Claim, "its holder is gone")

	q = fresh()
	q.enqueue(delayed("e", time.Second))
	q.claimAs("x", 1)
	q.do("DEL", ":wake")
	q.clock.Advance(time.Second)
	require.Equal(t, 1, q.look("x", lua.Busy, 0).Pushed, "a busy holder has another woken")

	q = fresh()
	q.overdue()
	q.do("HSET", ":meta", "paused", "1")
	require.False(t, q.look("y", lua.Idle, 0).Claim)
	require.Equal(t, "0", q.hash(":state")["want"], "nothing waits that could be granted")

	q = fresh()
	q.overdue()
	q.clock.Advance(-time.Hour)
	q.look("y", lua.Idle, 0)
	q.clock.Advance(21 * time.Millisecond)
	require.True(t, q.look("y", lua.Idle, 0).Claim, "a clock that stepped back hides nothing")
}

// With little budget left one process is woken for each job; who leaves work behind does not ask again by itself.
func TestLittleBudgetWakesOneAtATime(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	require.NoError(t, setLimit(66, "60000")(q))
	q.wait(ids(100)...)
	q.do("DEL", ":wake")
	c := q.claimAs("x", 1)
	require.True(t, c.Again, "65 are left")
	q.do("LPUSH", ":wake", "1")
	require.True(t, q.claimAs("x", 0).Again)
	require.EqualValues(t, 2, q.tokens())
	require.False(t, q.claimAs("x", 1).Again, "64 are left")
	q.do("DEL", ":wake")
	for left := 63; left > 0; left -= 9 {
		require.False(t, q.claimAs("x", 9).Again)
		require.EqualValues(t, min(1, max(0, left-9+1)), q.tokens(), left)
	}
	require.EqualValues(t, 1, q.tokens())
	c = q.claimAs("x", 1)
	require.Len(t, c.IDs, 1)
	require.False(t, c.Again)
	require.EqualValues(t, 0, q.tokens(), "the budget is spent: nobody need come")
	require.Equal(t, lease, c.Timers.Claim)
}
