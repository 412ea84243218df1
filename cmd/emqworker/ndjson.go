package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/echomq/emq/queue"
)

// lineFields says how each field of a line of NDJSON becomes part of the job.
var lineFields = map[string]func(*queue.Job, json.RawMessage) error{
	"id":           func(j *queue.Job, v json.RawMessage) error { return into(&j.ID, v, "a string") },
	"name":         func(j *queue.Job, v json.RawMessage) error { return into(&j.Name, v, "a string") },
	"max_attempts": func(j *queue.Job, v json.RawMessage) error { return into(&j.MaxAttempts, v, "a whole number") },
	"delay":        func(j *queue.Job, v json.RawMessage) error { return length(&j.Delay, v) },
	"timeout":      func(j *queue.Job, v json.RawMessage) error { return length(&j.Timeout, v) },
	"start_by":     func(j *queue.Job, v json.RawMessage) error { return length(&j.StartBy, v) },
	"retain":       func(j *queue.Job, v json.RawMessage) error { return length(&j.Retain, v) },
	"priority": func(j *queue.Job, v json.RawMessage) error {
		const want = "1 (first) to 4"
		if err := into(&j.Priority, v, want); err != nil {
			return err
		}
		if j.Priority == 0 { // the library's word for the default
			return errors.New("is 0; want " + want)
		}
		return nil
	},
	"at": func(j *queue.Job, v json.RawMessage) error {
		return into(&j.At, v, `a time as in "2030-01-02T15:04:05Z"`)
	},
	"keys": func(j *queue.Job, v json.RawMessage) error {
		return into(&j.Keys, v, `strings by name, as in {"tenant": "acme"}`)
	},
	"cost": func(j *queue.Job, v json.RawMessage) error {
		return into(&j.Cost, v, `whole numbers by unit, as in {"tokens": 1800}`)
	},
	"payload": func(j *queue.Job, v json.RawMessage) error {
		if v[0] != '"' {
			j.Payload = bytes.Clone(v)
			return nil
		}
		var text string
		err := into(&text, v, "a string")
		j.Payload = []byte(text)
		return err
	},
	"payload_base64": func(j *queue.Job, v json.RawMessage) error {
		var text string
		if err := into(&text, v, "a string"); err != nil {
			return err
		}
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return errors.New("is no base64: " + err.Error())
		}
		j.Payload = b
		return nil
	},
}

func into(target any, v json.RawMessage, want string) error {
	if err := json.Unmarshal(v, target); err != nil || string(v) == "null" {
		return fmt.Errorf("is %.60s; want %s", v, want)
	}
	return nil
}

func length(d *time.Duration, v json.RawMessage) error {
	const want = `a length of time as in "5s" or "1h30m"`
	var text string
	if err := into(&text, v, want); err != nil {
		return err
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("is %.60s; want %s", v, want)
	}
	*d = parsed
	return nil
}

// parseLine is the job of a line; what the line does not say is as in model.
func parseLine(line []byte, model queue.Job) (queue.Job, error) {
	if !utf8.Valid(line) {
		return queue.Job{}, errors.New("not UTF-8; send bytes as payload_base64")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil || fields == nil {
		return queue.Job{}, fmt.Errorf("no JSON object: %.60s", bytes.TrimSpace(line))
	}
	if fields["payload"] != nil && fields["payload_base64"] != nil {
		return queue.Job{}, errors.New("both payload and payload_base64 are given; want one of them")
	}
	job := model
	job.Keys, job.Cost = maps.Clone(model.Keys), maps.Clone(model.Cost)
	if fields["at"] != nil {
		job.Delay = 0
	}
	if fields["delay"] != nil {
		job.At = time.Time{}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		set, known := lineFields[name]
		if !known {
			return job, fmt.Errorf("field %q is unknown; want %s", name, strings.Join(slices.Sorted(maps.Keys(lineFields)), ", "))
		}
		if err := set(&job, fields[name]); err != nil {
			return job, fmt.Errorf("field %s %w", name, err)
		}
	}
	return job, nil
}

// readLine reads one line of at most [lineBytes]; the last one may lack its end and comes with io.EOF.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > lineBytes {
			return nil, fmt.Errorf("more than %d bytes", lineBytes)
		}
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

// lineReady: a whole line can be read without waiting for input.
func lineReady(r *bufio.Reader) bool {
	ready, _ := r.Peek(r.Buffered())
	return bytes.IndexByte(ready, '\n') >= 0
}
