package limiter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// String is the limit as [Parse] reads it: "100/1m0s", "30/1s token_bucket burst=60", or "unlimited".
func (l Limit) String() string {
	if l.Max == 0 {
		return "unlimited"
	}
	s := strconv.FormatInt(l.Max, 10) + "/" + l.window().String()
	if l.algorithm() != FixedWindow {
		s += " " + string(l.Algorithm)
	}
	if l.Burst > 0 {
		s += " burst=" + strconv.FormatInt(l.Burst, 10)
	}
	return strings.Join(append([]string{s}, l.options()...), " ")
}

// options are the words by which scripts know the options.
func (l Limit) options() (words []string) {
	if l.Aligned {
		words = append(words, "aligned")
	}
	if l.CountDenied {
		words = append(words, "count_denied")
	}
	return words
}

// Parse reads a limit written as max/window: "100/1m", "5/1s", "2000/24h" or "2000/1d", "3/s" (one second), or "unlimited".
// After a blank may follow what differs from the default, in any order: the name of the algorithm, burst=60, aligned,
// count_denied. The error wraps [ErrBadLimit].
func Parse(s string) (Limit, error) {
	if s == "unlimited" {
		return Limit{}, nil
	}
	rate, rest, _ := strings.Cut(s, " ")
	max, window, found := strings.Cut(rate, "/")
	n, err := strconv.ParseInt(max, 10, 64)
	if !found || err != nil {
		return Limit{}, fmt.Errorf("emq: %w: %q; want max/window as in 100/1m", ErrBadLimit, s)
	}
	length := window
	if length != "" && length[0] >= 'a' && length[0] <= 'z' {
		length = "1" + length
	}
	if days, ok := strings.CutSuffix(length, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			length = strconv.FormatUint(24*n, 10) + "h"
		}
	}
	d, err := time.ParseDuration(length)
	if err != nil || d <= 0 {
		return Limit{}, fmt.Errorf("emq: %w: window %q of %q is no length of time; want one as in 500ms, 1s, 1m, 24h", ErrBadLimit, window, s)
	}
	l := Limit{Max: n, Window: d}
	for _, word := range strings.Fields(rest) {
		if !l.set(word) {
			return Limit{}, fmt.Errorf("emq: %w: word %q of %q; want an algorithm, burst=60, aligned or count_denied", ErrBadLimit, word, s)
		}
	}
	if err := l.Validate(); err != nil {
		return Limit{}, err
	}
	return l, nil
}

// set sets what a word after the rate says, if it is one that Parse knows.
func (l *Limit) set(word string) bool {
	burst, isBurst := strings.CutPrefix(word, "burst=")
	switch {
	case slices.Contains(algorithms, Algorithm(word)):
		l.Algorithm = Algorithm(word)
	case isBurst:
		n, err := strconv.ParseInt(burst, 10, 64)
		l.Burst = n
		return err == nil
	case word == "aligned":
		l.Aligned = true
	case word == "count_denied":
		l.CountDenied = true
	default:
		return false
	}
	return true
}

// FromMeta is the limit that stands in a queue's meta hash, as the texts of its fields; the zero Limit when max is no number.
func FromMeta(max, duration, algorithm, burst string) Limit {
	n, err := strconv.ParseInt(max, 10, 64)
	if err != nil || n <= 0 {
		return Limit{}
	}
	ms, err := strconv.ParseInt(duration, 10, 64)
	if err != nil {
		ms = time.Second.Milliseconds()
	}
	l := Limit{Algorithm: FixedWindow, Max: n, Window: milliseconds(ms)}
	if algorithm != "" {
		l.Algorithm = Algorithm(algorithm)
	}
	l.Burst, _ = strconv.ParseInt(burst, 10, 64)
	return l
}
