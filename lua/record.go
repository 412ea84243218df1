package lua

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Record is a job as it is stored: counters that scripts change, a header that stays, and the payload. include/record.lua
// has the layout.
type Record struct {
	Priority  int       // 1 (first) to 4
	Enqueued  time.Time // by the server's clock
	Attempts  int       // attempts spent
	Deferrals int       // times it was sent back or deferred
	Reclaims  int       // leases that ran out
	Header    Header    // what the producer asked for
	Payload   []byte    // opaque bytes
	sequence  int64     // with the priority, the job's place
}

// Header is what the producer asked for a job. Zero fields are not stored.
type Header struct {
	Name        string
	MaxAttempts int
	Timeout     time.Duration
	StartBy     time.Duration
	Retain      time.Duration
	Keys        map[string]string
	Cost        map[string]int64
	TraceParent string
	TraceState  string
}

// The tags of the header's fields.
const (
	tagName        = 'n'
	tagMaxAttempts = 'm'
	tagTimeout     = 't'
	tagStartBy     = 's'
	tagRetain      = 'r'
	tagKey         = 'k'
	tagCost        = 'c'
	tagTraceParent = 'w'
	tagTraceState  = 'x'
	headerEnd      = '.'
)

const headSize = 33

// Body is the part of a record that the producer makes: the header and the payload.
func Body(h Header, payload []byte) string {
	var b strings.Builder
	b.Grow(64 + len(payload))
	put := func(tag byte, value string) {
		if value == "" {
			return
		}
		b.WriteByte(tag)
		b.WriteString(strconv.Itoa(len(value)))
		b.WriteByte(':')
		b.WriteString(value)
	}
	number := func(tag byte, n int64) {
		if n != 0 {
			put(tag, strconv.FormatInt(n, 10))
		}
	}
	ms := func(tag byte, d time.Duration) { // rounded up: a short time is not none
		n := d.Milliseconds()
		if d%time.Millisecond > 0 {
			n++
		}
		number(tag, n)
	}
	put(tagName, h.Name)
	number(tagMaxAttempts, int64(h.MaxAttempts))
	ms(tagTimeout, h.Timeout)
	ms(tagStartBy, h.StartBy)
	ms(tagRetain, h.Retain)
	if len(h.Keys) > 0 {
		for _, name := range slices.Sorted(maps.Keys(h.Keys)) {
			put(tagKey, name+"="+h.Keys[name])
		}
	}
	if len(h.Cost) > 0 {
		for _, unit := range slices.Sorted(maps.Keys(h.Cost)) {
			put(tagCost, unit+"="+strconv.FormatInt(h.Cost[unit], 10))
		}
	}
	put(tagTraceParent, h.TraceParent)
	put(tagTraceState, h.TraceState)
	b.WriteByte(headerEnd)
	b.Write(payload)
	return b.String()
}

var errRecord = errors.New("emq: unreadable job record")

// ParseRecord reads a stored record. A record cut short after its header, as pages carry it, has a short payload.
func ParseRecord(s string) (Record, error) {
	var r Record
	if len(s) <= headSize || s[0] < '1' || s[0] > '4' {
		return r, fmt.Errorf("%w: it begins %q; want a priority, 1 to 4", errRecord, cut(s, 8))
	}
	var bad error
	hex := func(from, to int) int64 {
		n, err := strconv.ParseUint(s[from:to], 16, 63)
		if err != nil {
			bad = fmt.Errorf("%w: %q at byte %d is no hexadecimal number", errRecord, s[from:to], from)
		}
		return int64(n)
	}
	r.Priority = int(s[0] - '0')
	r.sequence = hex(1, 13)
	r.Enqueued = time.UnixMilli(hex(13, 24))
	r.Attempts = int(hex(24, 27))
	r.Deferrals = int(hex(27, 31))
	r.Reclaims = int(hex(31, 32))
	hex(32, headSize)
	if bad != nil {
		return r, bad
	}
	rest := s[headSize:]
	for rest != "" && rest[0] != headerEnd {
		colon := strings.IndexByte(rest, ':')
		if colon < 2 {
			return r, fmt.Errorf("%w: header field without length", errRecord)
		}
		size, err := strconv.Atoi(rest[1:colon])
		if err != nil || size < 0 || size > len(rest)-colon-1 {
			return r, fmt.Errorf("%w: header field %q has a bad length", errRecord, rest[:1])
		}
		if err := r.Header.set(rest[0], rest[colon+1:colon+1+size]); err != nil {
			return r, err
		}
		rest = rest[colon+1+size:]
	}
	if rest == "" {
		return r, fmt.Errorf("%w: header without end", errRecord)
	}
	r.Payload = []byte(rest[1:])
	return r, nil
}

// set takes one field; fields of later versions are ignored.
func (h *Header) set(tag byte, value string) error {
	number := func() (n int64) {
		n, _ = strconv.ParseInt(value, 10, 64)
		return n
	}
	ms := func() time.Duration { return time.Duration(number()) * time.Millisecond }
	switch tag {
	case tagName:
		h.Name = value
	case tagMaxAttempts:
		h.MaxAttempts = int(number())
	case tagTimeout:
		h.Timeout = ms()
	case tagStartBy:
		h.StartBy = ms()
	case tagRetain:
		h.Retain = ms()
	case tagKey:
		name, v, _ := strings.Cut(value, "=")
		if h.Keys == nil {
			h.Keys = map[string]string{}
		}
		h.Keys[name] = v
	case tagCost:
		unit, v, _ := strings.Cut(value, "=")
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return fmt.Errorf("%w: cost %q is no number", errRecord, value)
		}
		if h.Cost == nil {
			h.Cost = map[string]int64{}
		}
		h.Cost[unit] = n
	case tagTraceParent:
		h.TraceParent = value
	case tagTraceState:
		h.TraceState = value
	}
	return nil
}

// Place orders all jobs of a queue: a lower place is claimed first.
func (r Record) Place() int64 { return int64(r.Priority)<<50 + r.sequence }
