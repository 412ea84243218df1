package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/queue"
)

// claimOne claims the next job of a queue.
func claimOne(t *testing.T, name string) (*claim.Claimer, *claim.Job) {
	t.Helper()
	claimer, err := claim.New(emqtest.Client(t), name, claim.Options{})
	require.NoError(t, err)
	batch, err := claimer.Claim(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 1)
	return claimer, batch.Jobs[0]
}

func settle(t *testing.T, claimer *claim.Claimer, o claim.Outcome) {
	t.Helper()
	answers, err := claimer.Settle(t.Context(), []claim.Outcome{o})
	require.NoError(t, err)
	require.NoError(t, answers[0])
}

// kill makes dead jobs.
func kill(t *testing.T, name string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		ok(t, "enqueue", name, "--id", id)
		claimer, job := claimOne(t, name)
		require.Equal(t, id, job.ID)
		settle(t, claimer, claim.DeadLetter(job, queue.ReasonDeadLettered, errors.New("no use")))
	}
}

func TestJobGet(t *testing.T) {
	t.Parallel()
	_, name := newTestQueue(t)
	id := "job-" + name // in no other queue
	a := emqIn(t, `{"id":"`+id+`","payload_base64":"/w==","keys":{"tenant":"x"},"cost":{"tokens":3},"max_attempts":5,"retain":"1h","timeout":"2s"}`, "enqueue", name, "-")
	require.Equal(t, 0, a.code, a.stderr)
	get := func(args ...string) jobJSON {
		t.Helper()
		j := decode[jobJSON](t, ok(t, append([]string{"job", "get", "--json"}, args...)...))
		assert.InDelta(t, time.Now().UnixMilli(), j.EnqueuedMS, 60_000)
		j.EnqueuedMS = 0
		return j
	}
	want := jobJSON{
		ID: id, Queue: name, State: queue.Wait, MaxAttempts: 5, Priority: 2, Keys: map[string]string{"tenant": "x"},
		Cost: map[string]int64{"tokens": 3}, Payload: "/w==", PayloadBase64: true, TimeoutMS: 2000, RetainMS: 3_600_000,
	}
	assert.Equal(t, want, get(name, id))
	assert.Equal(t, want, get("-q", name, id))
	assert.Equal(t, want, get(id), "looked for in all queues")

	claimer, job := claimOne(t, name)
	j := get(name, id)
	assert.Equal(t, queue.Active, j.State)
	assert.InDelta(t, time.Now().Add(30*time.Second).UnixMilli(), j.LeaseEndMS, 5000)

	settle(t, claimer, claim.Retry(job, time.Hour, errors.New("no\nluck")))
	j = get(name, id)
	assert.InDelta(t, time.Now().Add(time.Hour).UnixMilli(), j.DueMS, 5000)
	want.State, want.DelayedBy, want.Attempts, want.Reason, want.Error, want.DueMS = queue.Delayed, queue.ByRetry, 1, queue.ReasonRetry, "no\nluck", j.DueMS
	assert.Equal(t, want, j)
	text := ok(t, "job", "get", name, id)
	contains(t, text, "state       delayed\n", "delayed by  retry\n", "attempts    1 of 5\n", `error       "no\nluck"`, "payload     /w==  (base64)\n", `keys        {"tenant":"x"}`)

	assert.Equal(t, id+": waits\n", ok(t, "job", "run", name, id))
	claimer, job = claimOne(t, name)
	require.NoError(t, job.SetResult([]byte("fine")))
	settle(t, claimer, claim.Complete(job))
	j = get(name, id)
	assert.Equal(t, []any{queue.Completed, "fine"}, []any{j.State, j.Result})

	for _, args := range [][]string{{name, "none"}, {"-q", name, "none"}, {"none-" + name}} {
		a := emq(t, append([]string{"job", "get"}, args...)...)
		assert.Equal(t, exitNotFound, a.code)
		assert.Empty(t, a.stdout)
		assert.Contains(t, a.stderr, "job not found")
	}
	_, other := newTestQueue(t)
	ok(t, "enqueue", other, "--id", id)
	a = emq(t, "job", "get", id)
	assert.Equal(t, exitUsage, a.code)
	contains(t, a.stderr, name, other)
}

func TestJobList(t *testing.T) {
	t.Parallel()
	_, name := newTestQueue(t)
	assert.Equal(t, "[]\n", ok(t, "job", "ls", name, "--json"))
	kill(t, name, "dead")
	ok(t, "enqueue", name, "--id", "kept", "--retain", "1h")
	claimer, job := claimOne(t, name)
	settle(t, claimer, claim.Complete(job))
	ok(t, "enqueue", name, "--id", "active")
	claimOne(t, name)
	for i := range 3 {
		ok(t, "enqueue", name, "line\nfeed "+strings.Repeat("é", 40), "--id", fmt.Sprint("wait", i))
	}
	ok(t, "enqueue", name, "--id", "delayed", "--delay", "1h")

	ids := func(args ...string) (ids []string) {
		t.Helper()
		for _, j := range decode[[]jobJSON](t, ok(t, append([]string{"job", "ls", "--json"}, args...)...)) {
			ids = append(ids, j.ID)
		}
		return ids
	}
	all := []string{"active", "wait0", "wait1", "wait2", "delayed", "dead", "kept"}
	assert.Equal(t, all, ids(name))
	assert.Equal(t, all, ids("-q", name))
	assert.Equal(t, all[1:4], ids(name, "--state", "wait"))
	assert.Equal(t, all[5:6], ids(name, "--state", "dead"))
	for offset := range all {
		for limit := 1; limit <= len(all)-offset; limit++ {
			assert.Equal(t, all[offset:offset+limit], ids(name, "--offset", fmt.Sprint(offset), "--limit", fmt.Sprint(limit)))
		}
	}
	table := lines(ok(t, "job", "ls", name))
	require.Len(t, table, 8)
	assert.True(t, strings.HasPrefix(table[0], "ID "))
	assert.Regexp(t, `^active +active +0 of 25 +lease until 2`, table[1])
	assert.Regexp(t, `^wait0 +wait +0 of 25 +since 2\S+ \S+ \S+ +"line\\nfeed é+…$`, table[2])
	assert.Regexp(t, `^delayed +delayed +0 of 25 +due 2.*\(delay\)`, table[5])
	assert.Regexp(t, `^dead +dead +1 of 25 +died 2.*\(dead_lettered\)`, table[6])
	assert.Regexp(t, `^kept +completed +0 of 25 +kept until 2`, table[7])
}

func TestJobListInPages(t *testing.T) {
	t.Parallel()
	_, name := newTestQueue(t)
	a := emqIn(t, strings.Repeat("{}\n", 2300), "enqueue", name, "-")
	require.Equal(t, 0, a.code)
	var got []string
	for _, j := range decode[[]jobJSON](t, ok(t, "job", "ls", name, "--limit", "5000", "--json")) {
		got = append(got, j.ID)
	}
	assert.Equal(t, lines(a.stdout), got)
}

func TestJobRedriveAndRemove(t *testing.T) {
	t.Parallel()
	q, name := newTestQueue(t)
	kill(t, name, "a", "b", "c", "d", "e")
	assert.Equal(t, "a: waits\n", ok(t, "job", "redrive", name, "a"))
	a := emq(t, "job", "redrive", "-q", name, "none", "b")
	assert.Equal(t, exitNotFound, a.code)
	assert.Equal(t, "b: waits\n", a.stdout, "the others are redriven all the same")
	assert.Equal(t, "emqworker: redrive job none: job not found in queue "+name+"\n", a.stderr)
	a = emq(t, "job", "redrive", name, "a")
	assert.Equal(t, exitFailure, a.code)
	assert.Contains(t, a.stderr, "it is wait; want dead")

	assert.Equal(t, "c: deleted\n", ok(t, "job", "rm", name, "c"))
	assert.Equal(t, name+": 0 jobs redriven\n", ok(t, "job", "redrive", name, "--reason", "lost"))
	assert.Equal(t, name+": 2 jobs redriven\n", ok(t, "job", "redrive", name, "--reason", "dead_lettered"))
	wait, _, _, dead := counts(t, q)
	assert.Equal(t, []int64{4, 0}, []int64{wait, dead})

	_, name = newTestQueue(t)
	kill(t, name, "a", "b")
	assert.Equal(t, name+": 2 jobs redriven\n", ok(t, "job", "redrive", "-q", name, "--all"))
	ok(t, "job", "rm", name, "a", "b")
	kill(t, name, "a", "b")
	assert.Equal(t, name+": 0 jobs deleted\n", ok(t, "job", "rm", name, "--reason", "attempts"))
	assert.Equal(t, name+": 2 jobs deleted\n", ok(t, "job", "rm", name, "--all-dead"))
	ok(t, "enqueue", name, "--id", "a")
	claimOne(t, name)
	a = emq(t, "job", "rm", name, "a")
	assert.Equal(t, exitFailure, a.code)
	assert.Contains(t, a.stderr, "it is active")
}
