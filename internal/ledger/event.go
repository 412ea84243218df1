package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Kind is what happened.
type Kind string

// The kinds.
const (
	Try     Kind = "try"     // a producer is about to enqueue Job
	Stored  Kind = "stored"  // the enqueue returned without error
	Refused Kind = "refused" // it returned an error that says that nothing was stored
	Start   Kind = "start"   // a handler was started
	End     Kind = "end"     // it returned
	Killed  Kind = "killed"  // process Pid is gone; nothing of it runs
	Stopped Kind = "stopped" // process Pid was stopped by SIGSTOP
	Going   Kind = "going"   // and goes on
)

// Event is a line of the ledger.
type Event struct {
	Kind    Kind   `json:"k"`
	At      int64  `json:"at"` // ms since 1970 by the clock of the machine
	Pid     int    `json:"pid,omitempty"`
	Queue   string `json:"q,omitempty"`
	Job     string `json:"id,omitempty"`
	Token   string `json:"t,omitempty"`
	Attempt int    `json:"n,omitempty"`
	Sum     string `json:"sum,omitempty"` // of the payload
	Note    string `json:"note,omitempty"`
}

// Writer appends events to a file. Each is one write, so that a process that is killed leaves no half line behind that another
// process's line is glued to.
type Writer struct{ file *os.File }

// Append opens a ledger to write to, and makes it where there is none.
func Append(path string) (*Writer, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &Writer{file}, err
}

// Write adds events, in one write.
func (w *Writer) Write(events ...Event) error {
	var b bytes.Buffer
	for _, e := range events {
		if e.At == 0 {
			e.At = time.Now().UnixMilli()
		}
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		b.Write(append(line, '\n'))
	}
	_, err := w.file.Write(b.Bytes())
	return err
}

// Close closes the file.
func (w *Writer) Close() error { return w.file.Close() }

// Reader reads a ledger as it grows.
type Reader struct {
	file *os.File
	rest []byte
}

// Open opens a ledger to read.
func Open(path string) (*Reader, error) {
	file, err := os.Open(path)
	return &Reader{file: file}, err
}

// Next returns the events that were added since the last call.
func (r *Reader) Next() ([]Event, error) {
	more, err := io.ReadAll(r.file)
	if err != nil {
		return nil, err
	}
	r.rest = append(r.rest, more...)
	var events []Event
	for {
		line, rest, whole := bytes.Cut(r.rest, []byte("\n"))
		if !whole {
			r.rest = bytes.Clone(r.rest)
			return events, nil
		}
		r.rest = rest
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return events, fmt.Errorf("ledger: %q is no event: %w", line, errors.Unwrap(err))
		}
		events = append(events, e)
	}
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }
