package webhook

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Wait is how long an answer asks its client to wait: the longest that its headers name, false when none names any.
//
// It reads Retry-After (RFC 9110: seconds or a date; also durations such as 1m30s, which some services send), retry-after-ms, the
// RateLimit field of the IETF draft in both of its shapes, RateLimit-Reset, and the X-RateLimit-Reset family: seconds, a moment
// in seconds or milliseconds since 1970, or a duration. A reset beside a remaining count above 0 is not asked for.
func Wait(h http.Header, now time.Time) (wait time.Duration, asked bool) {
	if sent, err := http.ParseTime(h.Get("Date")); err == nil {
		now = sent // a date in the answer is by the same clock
	}
	add := func(d time.Duration, ok bool) {
		if ok {
			asked, wait = true, max(wait, d)
		}
	}
	add(moment(h.Get("Retry-After"), now))
	add(number(h.Get("Retry-After-Ms"), time.Millisecond))
	if asked {
		return wait, true // what it says outright counts, not how its windows stand
	}
	for _, field := range h.Values("RateLimit") {
		add(rateLimit(field))
	}
	for name, values := range h {
		left, is := resets(name)
		if !is || len(values) == 0 {
			continue
		}
		if n, err := strconv.ParseFloat(h.Get(left), 64); err == nil && n > 0 {
			continue
		}
		add(moment(values[0], now))
	}
	return wait, asked
}

// resets says whether a header tells when a limit resets, and which one tells what it has left.
func resets(name string) (remaining string, is bool) {
	before, after, found := strings.Cut(name, "Ratelimit-Reset")
	if !found || before != "" && before != "X-" {
		return "", false
	}
	return before + "Ratelimit-Remaining" + strings.TrimPrefix(after, "-After"), true
}

// moment reads a time to wait: seconds, a duration, an HTTP date or a time since 1970.
func moment(s string, now time.Time) (time.Duration, bool) {
	s = strings.TrimSpace(s)
	if at, err := http.ParseTime(s); err == nil {
		return max(0, at.Sub(now)), true
	}
	if d, err := time.ParseDuration(s); err == nil && s != "0" {
		return max(0, d), true
	}
	n, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil || n != n || n < 0:
		return 0, false
	case n >= 1e12: // ms since 1970
		return max(0, time.UnixMilli(int64(min(n, 1e15))).Sub(now)), true
	case n >= 1e9: // s since 1970
		return max(0, time.Unix(int64(n), 0).Sub(now)), true
	}
	return time.Duration(n * float64(time.Second)), true
}

func number(s string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || n != n || n < 0 || n > 1e15 {
		return 0, false
	}
	return time.Duration(min(n*float64(unit), float64(1<<62))), true
}

// rateLimit reads a RateLimit field: "name";r=0;t=14, …, or limit=10, remaining=0, reset=14 as in earlier drafts.
func rateLimit(field string) (wait time.Duration, asked bool) {
	params := func(s string) map[string]string {
		m := map[string]string{}
		for _, part := range strings.FieldsFunc(s, func(r rune) bool { return r == ';' || r == ',' }) {
			if name, value, ok := strings.Cut(strings.TrimSpace(part), "="); ok {
				m[strings.ToLower(name)] = value
			}
		}
		return m
	}
	one := func(m map[string]string, remaining, reset string) {
		if d, ok := number(m[reset], time.Second); ok && (m[remaining] == "0" || m[remaining] == "") {
			asked, wait = true, max(wait, d)
		}
	}
	one(params(field), "remaining", "reset")
	for _, policy := range strings.Split(field, ",") {
		one(params(policy), "r", "t")
	}
	return wait, asked
}
