package ledger_test

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/internal/ledger"
)

// record is a run in the order in which a checker is told of it; each step is an audit entry or an event.
type record []any

type audit = map[string]string

func enqueued(id string, at int) audit {
	return audit{"op": "enqueue", "at": strconv.Itoa(at), "ids": id, "places": "2:" + strconv.Itoa(at)}
}

func granted(id, token string, at int, more ...string) audit {
	e := audit{"op": "claim", "at": strconv.Itoa(at), "k": "1", "token": token, "lease": "1000", "granted": id, "max": "0", "duration": "1000", "algorithm": "fixed_window"}
	for i := 0; i < len(more); i += 2 {
		e[more[i]] = more[i+1]
	}
	return e
}

func settled(outcome, id, token string, at int) audit {
	return audit{"op": "settle", "at": strconv.Itoa(at), "process": "p", "jobs": outcome + " " + id + "|" + token + " 0"}
}

func event(kind ledger.Kind, id, token string) ledger.Event {
	e := ledger.Event{Kind: kind, Job: id, Token: token, At: 1, Pid: 7}
	if kind == ledger.Start {
		e.Sum, e.Attempt = "sum of "+id, 1
	}
	return e
}

// good is a run without fault: a completes; b loses a lease, fails once and completes.
func good() record {
	return record{
		event(ledger.Try, "a", ""), enqueued("a", 1), event(ledger.Stored, "a", ""),
		event(ledger.Try, "b", ""), enqueued("b", 2), event(ledger.Stored, "b", ""),
		granted("a", "01-x", 10), event(ledger.Start, "a", "01-x"), event(ledger.End, "a", "01-x"), settled("complete", "a", "01-x", 20),
		granted("b", "02-x", 30), event(ledger.Start, "b", "02-x"),
		granted("b", "03-x", 1040, "reclaimed", "b"), event(ledger.Start, "b", "03-x"), event(ledger.End, "b", "02-x"), event(ledger.End, "b", "03-x"),
		settled("retry", "b", "03-x", 1050),
		granted("b", "04-x", 1060, "returned", "b"), ledger.Event{Kind: ledger.Start, Job: "b", Token: "04-x", Sum: "sum of b", Attempt: 2, Pid: 7, At: 1}, event(ledger.End, "b", "04-x"),
		settled("complete", "b", "04-x", 1070),
	}
}

func check(t *testing.T, r record, stored ...string) *ledger.Checker {
	t.Helper()
	c := ledger.New("q", 3, func(job string) string { return "sum of " + job })
	for _, step := range r {
		switch s := step.(type) {
		case audit:
			c.Audit(maps.Clone(s))
		case ledger.Event:
			c.Event(s)
		}
	}
	c.Finish(func(job string) bool {
		for _, s := range stored {
			if s == job {
				return true
			}
		}
		return false
	})
	return c
}

func TestGoodRun(t *testing.T) {
	t.Parallel()
	c := check(t, good())
	assert.Empty(t, c.Violations)
	assert.Equal(t, ledger.Counts{Enqueued: 2, Claims: 4, Admitted: 4, Completed: 2, Reclaimed: 1, Starts: 4, Overlaps: 1, LateMS: 10}, c.Counts)
}

// Each invariant is broken by a line that is changed, left out or added, and found.
func TestEachInvariantBites(t *testing.T) {
	t.Parallel()
	without := func(i int) record { r := good(); return append(r[:i:i], r[i+1:]...) }
	instead := func(i int, step any) record { r := good(); r[i] = step; return r }
	after := func(i int, step any) record { r := good(); return append(append(r[:i+1:i+1], step), r[i+1:]...) }
	wrongSum := event(ledger.Start, "a", "01-x")
	wrongSum.Sum = "other"
	for name, c := range map[string]struct {
		r         record
		invariant string
	}{
		"an enqueue that stored nothing":          {without(1), "I1"},
		"a job that vanished":                     {good()[:len(good())-1], "I1"},
		"a job that nobody enqueued":              {without(0), "I2"},
		"a start without a claim":                 {instead(7, event(ledger.Start, "a", "77-x")), "I2"},
		"another payload":                         {instead(7, wrongSum), "I2"},
		"a grant of a job that is over":           {after(9, granted("a", "018-x", 25)), "I3"},
		"a grant while a lease runs":              {instead(12, granted("b", "03-x", 900)), "I3"},
		"a reclaim before the end":                {instead(12, granted("b", "03-x", 900, "reclaimed", "b")), "I3"},
		"a settle by a lease that is over":        {instead(16, settled("retry", "b", "02-x", 1050)), "I4"},
		"a second completion":                     {append(good(), settled("complete", "b", "04-x", 1080)), "I4"},
		"a run beside a live lease":               {after(15, event(ledger.Start, "b", "04-x")), "I2"},
		"two runs under one lease":                {after(11, event(ledger.Start, "b", "02-x")), "I5"},
		"a token that was given before":           {instead(10, granted("b", "01-x", 30)), "I6"},
		"an attempt that nothing spent":           {instead(13, ledger.Event{Kind: ledger.Start, Job: "b", Token: "03-x", Sum: "sum of b", Attempt: 2, Pid: 7}), "I7"},
		"a grant that the model refuses":          {instead(10, granted("b", "02-x", 30, "max", "1", "k", "1", "granted", "c b")), "I8"},
		"a claim that leaves what it could grant": {instead(10, granted("", "", 30)), "I8"},
		"a job that comes back late":              {instead(12, granted("b", "03-x", 9000, "reclaimed", "b")), "I9"},
	} {
		found := map[string]bool{}
		for _, v := range check(t, c.r).Violations {
			found[v.Invariant] = true
		}
		assert.True(t, found[c.invariant], "%s: %v", name, found)
	}
	assert.Empty(t, check(t, good()[:len(good())-1], "b").Violations, "still stored")
}

// A run of a killed process has ended.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	r := good()
	r[14] = ledger.Event{Kind: ledger.Killed, Pid: 7}
	r = append(r[:12:12], append(record{r[14]}, r[12:]...)...)
	assert.Zero(t, check(t, r).Overlaps)
}

func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	w, err := ledger.Append(path)
	require.NoError(t, err)
	defer w.Close()
	r, err := ledger.Open(path)
	require.NoError(t, err)
	defer r.Close()
	next := func() []ledger.Event {
		events, err := r.Next()
		require.NoError(t, err)
		return events
	}
	assert.Empty(t, next())
	require.NoError(t, w.Write(ledger.Event{Kind: ledger.Try, Job: "a"}, ledger.Event{Kind: ledger.Try, Job: "b\n"}))
	got := next()
	require.Len(t, got, 2)
	assert.Equal(t, []any{"a", "b\n"}, []any{got[0].Job, got[1].Job})
	assert.NotZero(t, got[0].At)
	half, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	defer half.Close()
	_, _ = half.WriteString(`{"k":"sto`)
	assert.Empty(t, next(), "half a line")
	_, _ = half.WriteString("red\"}\n")
	assert.Len(t, next(), 1)
	_, _ = half.WriteString("nonsense\n")
	_, err = r.Next()
	assert.ErrorContains(t, err, "nonsense")
}
