package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/queue"
)

func TestEnqueueOne(t *testing.T) {
	t.Parallel()
	q, name := newTestQueue(t)
	id := strings.TrimSpace(ok(t, "enqueue", name, "he\"llo", "--name", "send", "--delay", "1h", "--priority", "1", "--key", "tenant=a=b",
		"--key", "model=", "--cost", "tokens=1800", "--max-attempts", "3", "--timeout", "5s", "--start-by", "7s", "--retain", "2h"))
	s, err := q.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, queue.Delayed, s.State)
	assert.InDelta(t, time.Hour, s.DueAt.Sub(s.EnqueuedAt), float64(time.Second))
	assert.Equal(t, queue.Job{
		ID: id, Name: "send", Payload: []byte("he\"llo"), Priority: queue.Urgent, Keys: map[string]string{"tenant": "a=b", "model": ""},
		Cost: map[string]int64{"tokens": 1800}, MaxAttempts: 3, Timeout: 5 * time.Second, StartBy: 7 * time.Second, Retain: 2 * time.Hour,
	}, s.Job)

	assert.Equal(t, "a\n", ok(t, "enqueue", name, "--id", "a", "--at", time.Now().Add(time.Hour).Format(time.RFC3339)))
	s, err = q.Get(t.Context(), "a")
	require.NoError(t, err)
	assert.Empty(t, s.Payload)
	assert.InDelta(t, time.Hour, s.DueAt.Sub(s.EnqueuedAt), float64(2*time.Second))

	a := emq(t, "enqueue", name, "other", "--id", "a")
	assert.Equal(t, exitFailure, a.code)
	assert.Empty(t, a.stdout)
	assert.Equal(t, "emqworker: job a: duplicate job id in queue "+name+"; nothing was changed\n", a.stderr)
}

func TestEnqueueLines(t *testing.T) {
	t.Parallel()
	q, name := newTestQueue(t)
	a := emqIn(t, `{"payload": "text <é\n>", "id": "a", "name": "n", "priority": 3, "keys": {"tenant": "x"}, "cost": {"tokens": 7}, "max_attempts": 4, "timeout": "1m", "start_by": "2s", "retain": "1h"}
{"id": "b", "payload": {"n": 12345678901234567890,  "s": "<>"}}

{"id": "c", "payload_base64": "AP/+DQo="}
{"id": "a", "payload": "again"}
{"id": "d", "delay": "1h"}
{"id": "e", "at": "`+time.Now().Add(time.Hour).Format(time.RFC3339)+`", "payload": null}`, "enqueue", name, "-", "--key", "tenant=y", "--key", "model=m", "--max-attempts", "9")
	assert.Equal(t, exitFailure, a.code)
	assert.Equal(t, "a\nb\nc\nd\ne\n", a.stdout)
	assert.Equal(t, "emqworker: line 5: job a: duplicate job id in queue "+name+"; nothing was changed\n", a.stderr)

	get := func(id string) queue.Status {
		s, err := q.Get(t.Context(), id)
		require.NoError(t, err)
		return s
	}
	model := map[string]string{"tenant": "y", "model": "m"}
	assert.Equal(t, queue.Job{
		ID: "a", Name: "n", Payload: []byte("text <é\n>"), Priority: queue.Low, Keys: map[string]string{"tenant": "x", "model": "m"},
		Cost: map[string]int64{"tokens": 7}, MaxAttempts: 4, Timeout: time.Minute, StartBy: 2 * time.Second, Retain: time.Hour,
	}, get("a").Job)
	assert.Equal(t, queue.Job{
		ID: "b", Payload: []byte(`{"n": 12345678901234567890,  "s": "<>"}`), Priority: queue.Normal, Keys: model, MaxAttempts: 9,
	}, get("b").Job)
	assert.Equal(t, []byte("\x00\xff\xfe\r\n"), get("c").Payload)
	assert.Equal(t, queue.Delayed, get("d").State)
	assert.Equal(t, []byte("null"), get("e").Payload)
}

func TestEnqueueManyLines(t *testing.T) {
	t.Parallel()
	q, name := newTestQueue(t)
	var in strings.Builder
	for i := range 2500 {
		fmt.Fprintf(&in, "{\"id\":\"%d\",\"payload\":\"%s\"}\n", i, strings.Repeat("x", i%100))
	}
	a := emqIn(t, in.String(), "enqueue", name, "-")
	require.Equal(t, 0, a.code, a.stderr)
	ids := lines(a.stdout)
	require.Len(t, ids, 2500)
	page, err := q.List(t.Context(), queue.Wait, 1000, 1000)
	require.NoError(t, err)
	for i, s := range page {
		require.Equal(t, fmt.Sprint(1000+i), ids[1000+i])
		require.Equal(t, ids[1000+i], s.ID)
	}
}

func TestEnqueueLinesAsTheyCome(t *testing.T) {
	t.Parallel()
	q, name := newTestQueue(t)
	r, w := io.Pipe()
	code := make(chan int)
	go func() {
		code <- execute([]string{"--url", emqtest.URL(t), "enqueue", name, "-"}, r, io.Discard, io.Discard)
	}()
	for i := range 3 {
		_, err := io.WriteString(w, "{}\n{\"payload\":")
		require.NoError(t, err)
		eventually(t, func() bool { wait, _, _, _ := counts(t, q); return wait == int64(2*i+1) }, "whole lines are sent before more is waited for")
		_, err = io.WriteString(w, "1}\n")
		require.NoError(t, err)
	}
	w.Close()
	assert.Equal(t, 0, <-code)
	wait, _, _, _ := counts(t, q)
	assert.EqualValues(t, 6, wait)
}

func TestEnqueueBadLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"dely":"5s"}`:          `field "dely" is unknown; want at, cost, delay, id`,
		`{"Payload":"x"}`:        `field "Payload" is unknown`,
		`[1]`:                    "no JSON object: [1]",
		`null`:                   "no JSON object: null",
		`nonsense`:               "no JSON object: nonsense",
		`{"payload":"x"`:         "no JSON object",
		`{"payload":"x"} {}`:     "no JSON object",
		"{\"payload\":\"\xff\"}": "not UTF-8; send bytes as payload_base64",
		`{"payload":"x","payload_base64":"eA=="}`: "both payload and payload_base64",
		`{"payload_base64":"?"}`:                  "field payload_base64 is no base64",
		`{"id":5}`:                                "field id is 5; want a string",
		`{"id":null}`:                             "field id is null; want a string",
		`{"id":"a:b"}`:                            "job id \"a:b\" has ':' at byte 1",
		`{"priority":"2"}`:                        `field priority is "2"; want 1 (first) to 4`,
		`{"priority":0}`:                          "field priority is 0; want 1 (first) to 4",
		`{"priority":9}`:                          "priority 9; want 1 (first) to 4",
		`{"delay":5}`:                             `field delay is 5; want a length of time as in "5s"`,
		`{"delay":"soon"}`:                        `field delay is "soon"; want a length of time`,
		`{"at":"tomorrow"}`:                       `field at is "tomorrow"; want a time`,
		`{"delay":"1s","at":"2099-01-01T00:00:00Z"}`:        "both Delay and At are set",
		`{"keys":{"a":1}}`:                                  `field keys is {"a":1}; want strings by name`,
		`{"cost":{"a":1.5}}`:                                "field cost is {\"a\":1.5}; want whole numbers by unit",
		`{"cost":{"a":-1}}`:                                 "cost a is -1",
		`{"max_attempts":5000}`:                             "max attempts 5000",
		`{"payload":"` + strings.Repeat("x", 1<<20) + `y"}`: "payload too large: 1048577 bytes",
		`{"payload":"` + strings.Repeat("x", 17<<20) + `"}`: "more than 16777216 bytes",
	} {
		q, name := newTestQueue(t)
		a := emqIn(t, "{\"id\":\"a\"}\n\n{\"id\":\"b\"}\n"+line+"\n{\"id\":\"c\"}\n", "enqueue", name, "-")
		label := line[:min(len(line), 60)]
		assert.Equal(t, exitFailure, a.code, label)
		assert.Equal(t, "a\nb\n", a.stdout, label)
		contains(t, a.stderr, "emqworker: line 4: ", want, "; enqueued before it: 2\n")
		wait, _, _, _ := counts(t, q)
		assert.EqualValues(t, 2, wait, label)
	}
}
