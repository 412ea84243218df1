package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// The systems that are compared.
const (
	emq       = "emq"
	asynq     = "asynq"
	bullmq    = "bullmq"
	floor     = "floor" // the fewest Valkey commands, or a bare timer
	redisRate = "redis_rate"
	throttled = "throttled"
)

// samples are what one round measured, by name.
type samples map[string][]float64

// one is a round that measured one value for each name.
func one(values map[string]float64) samples {
	s := samples{}
	for name, v := range values {
		s[name] = []float64{v}
	}
	return s
}

// String shows the median of each name.
func (s samples) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		part := fmt.Sprintf("%s %.5g", name, median(s[name]))
		if n := len(s[name]); n > 1 {
			part += fmt.Sprintf(" (of %d, most %.5g)", n, most(s[name]))
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// figure is one name that is reported.
type figure struct {
	name, unit string
	from       string                  // the samples that it is made of; empty: those of its own name
	stat       func([]float64) float64 // what is reported of them; nil: the median
}

func (f figure) source() string {
	if f.from != "" {
		return f.from
	}
	return f.name
}

func (f figure) of(values []float64) float64 {
	if f.stat != nil {
		return f.stat(values)
	}
	return median(values)
}

// series measures figures that one run gives together.
type series struct {
	figures []figure
	systems []string
	once    bool // one run does all rounds, or no round differs from another
	run     func(ctx context.Context, e *env, system string) samples
}

func (s series) has(names *regexp.Regexp) bool {
	return slices.ContainsFunc(s.figures, func(f figure) bool { return names.MatchString(f.name) })
}

// within bounds one run; what takes longer hangs.
const within = 5 * time.Minute

// try is one run of one system. What check or must threw is its error.
func (s series) try(ctx context.Context, e *env, system string) (got samples, err error) {
	limit := within
	if s.once {
		limit *= 2
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer catch(&err)
	return s.run(ctx, e, system), nil
}

// failure is an error on its way from check to catch.
type failure struct{ error }

// check ends the run with err if there is one.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must is v, or the end of the run.
func must[T any](v T, err error) T {
	check(err)
	return v
}

// fail ends the run.
func fail(format string, args ...any) { check(fmt.Errorf(format, args...)) }

// catch turns what check threw into an error.
func catch(err *error) {
	p := recover()
	if p == nil {
		return
	}
	f, ok := p.(failure)
	if !ok {
		panic(p)
	}
	*err = errors.Join(*err, f.error)
}

// wait returns when done is closed, or ends the run when ctx ends first.
func wait(ctx context.Context, done <-chan struct{}, what string) {
	select {
	case <-done:
	case <-ctx.Done():
		fail("waiting for %s: %w", what, ctx.Err())
	}
}

// pause sleeps, or ends the run when ctx ends first.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
		check(ctx.Err())
	}
}

// parallel runs f n times at once and ends the run when one of them does.
func parallel(n int, f func(i int)) {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			defer catch(&errs[i])
			f(i)
		})
	}
	all.Wait()
	check(errors.Join(errs...))
}

// quantile is the least value that a share p of all values does not exceed.
func quantile(p float64) func([]float64) float64 {
	return func(values []float64) float64 {
		sorted := slices.Sorted(slices.Values(values))
		return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func most(values []float64) float64 { return slices.Max(values) }

// round keeps five digits.
func round(v float64) float64 {
	if v == 0 {
		return 0
	}
	scale := math.Pow(10, 4-math.Floor(math.Log10(math.Abs(v))))
	if scale > 1 {
		return math.Round(v*scale) / scale
	}
	return math.Round(v)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
