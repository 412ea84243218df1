package main

import (
	"strconv"
	"strings"
)

// replay follows a queue's audit stream, in which every script says what it did, and judges it against the queue's limit. The
// stream's order is the order of execution, and its times are the server's.
type replay struct {
	slack int64 // ms by which a window may open early: 0 on a server

	windows   []window // the last one may still be open
	enqueued  int
	completed map[string]int
	deferred  int
	over      int64 // grants beyond what a window had left, or before it was over
	under     int64 // grants that a claim asked for and the limit still had, while jobs waited

	waiting map[string]bool // what a claim could take if the limit lets it
	since   int64           // ms since when there is something waiting
	now     int64           // ms of the last entry
}

// window is one window of a fixed-window limit.
type window struct {
	opened, closes int64 // ms
	max, admitted  int64
	deferred       int
	retryAfter     int64 // ms, of the first refusal
	late           int64 // ms from the end of the one before, while jobs waited
}

func newReplay() *replay {
	return &replay{completed: map[string]int{}, waiting: map[string]bool{}}
}

// add takes the next entry.
func (r *replay) add(entry map[string]string) {
	r.now = number(entry["at"])
	switch entry["op"] {
	case "enqueue":
		places := strings.Fields(entry["places"])
		for i, id := range strings.Fields(entry["ids"]) {
			r.enqueued++
			if i < len(places) && !strings.Contains(places[i], "@") { // else delayed
				r.waits(id)
			}
		}
	case "claim":
		for _, id := range strings.Fields(entry["returned"] + " " + entry["reclaimed"]) {
			r.waits(id)
		}
		r.claim(entry, strings.Fields(entry["granted"]))
	case "settle":
		for _, settled := range strings.Split(entry["jobs"], ",") {
			outcome, rest, _ := strings.Cut(settled, " ")
			id, _, _ := strings.Cut(rest, "|")
			switch outcome {
			case "complete":
				r.completed[id]++
			case "back":
				r.waits(id)
			}
		}
	}
}

func (r *replay) claim(entry map[string]string, granted []string) {
	n := int64(len(granted))
	if n > 0 && number(entry["max"]) > 0 {
		if entry["opened"] == "1" {
			r.open(entry)
		}
		w := r.last()
		if w == nil {
			r.over += n // spent in no window
		} else {
			r.over += max(0, min(n, w.admitted+n-w.max))
			w.admitted += n
		}
	}
	for _, id := range granted {
		delete(r.waiting, id)
	}
	if max := number(entry["max"]); max > 0 && entry["more"] != "1" && entry["answer"] != "paused" {
		free := max
		if w := r.last(); w != nil && r.now < w.closes+r.slack {
			free = w.max - w.admitted
		}
		// A fleet that asks late is late, which is told apart; one that asks and is not given what is there is under.
		if lacked := min(number(entry["k"])-n, free, int64(len(r.waiting))); lacked > 0 {
			r.under += lacked
		}
	}
	if entry["sent_back"] == "" {
		return
	}
	r.deferred++
	if w := r.last(); w != nil {
		w.deferred++
		if w.retryAfter == 0 {
			w.retryAfter = number(entry["retry_after"])
		}
	}
}

// open begins a window.
func (r *replay) open(entry map[string]string) {
	next := window{opened: r.now, closes: r.now + number(entry["duration"]), max: number(entry["max"])}
	if before := r.last(); before != nil {
		if r.now < before.closes-r.slack {
			r.over += int64(len(strings.Fields(entry["granted"])))
		}
		if len(r.waiting) > 0 {
			next.late = max(0, r.now-max(before.closes, r.since))
		}
	}
	r.windows = append(r.windows, next)
}

func (r *replay) last() *window {
	if len(r.windows) == 0 {
		return nil
	}
	return &r.windows[len(r.windows)-1]
}

func (r *replay) waits(id string) {
	if len(r.waiting) == 0 {
		r.since = r.now
	}
	r.waiting[id] = true
}

func (r *replay) admitted() (n int64) {
	for _, w := range r.windows {
		n += w.admitted
	}
	return n
}

func (r *replay) latest() (ms int64) {
	for _, w := range r.windows {
		ms = max(ms, w.late)
	}
	return ms
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
