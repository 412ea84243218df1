// Package model is a queue without a server, in plain Go: what each call must answer and leave behind, decided job by job. Tests hold
// the scripts against it, and the checker replays audit streams through it.
package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/echomq/emq/limiter"
)

// The states of a job. A completed one is gone.
const (
	Wait    = "wait"
	Active  = "active"
	Delayed = "delayed"
	Dead    = "dead"
)

// Job is a job as the model sees it.
type Job struct {
	ID       string
	Priority int
	Seq      int64
	Keys     map[string]string
	Cost     map[string]int64
	State    string

	Due  int64  // Delayed: ms
	Sent bool   // Delayed: by a limit for all jobs; it keeps its place
	Line string // Delayed: the bucket in whose line it stands

	End    int64    // Active: of its lease, ms
	places []string // concurrency buckets that its lease counts in
	took   map[string]taken

	Attempts, Deferrals, Reclaims int
	moves                         int
	Reason                        string // Dead, or retry
}

// taken is what a lease reserved of a bucket by cost.
type taken struct {
	n    int64
	mark string
}

// Place orders all jobs.
func (j *Job) Place() int64 { return int64(j.Priority)<<50 + j.Seq }

// Limit is a limit by name.
type Limit struct {
	Name string
	limiter.Limit
	By, Unit  string
	Shadow    bool
	Overrides map[string]limiter.Limit

	bucket string
}

// Concurrency is the algorithm that counts leases.
const Concurrency limiter.Algorithm = "concurrency"

func (l *Limit) forAll() bool { return l.By == "" && l.Unit == "" }

// line is the state of a bucket's line; the jobs know that they stand in it.
type line struct {
	open bool
	wake int64
}

type hold struct {
	id       string
	place, n int64
	till     int64
}

// Queue is the model of one queue. Make one with [New].
type Queue struct {
	Now         int64 // the server's clock, ms
	Paused      bool
	Lease       int64 // ms
	MaxReclaims int
	Jobs        map[string]*Job
	Own         limiter.Limit // the queue's own limit; Max 0 for none
	OwnBucket   *limiter.Model
	Limits      map[string]*Limit
	NoHolds     bool // switches the rule against starvation off

	seq      int64
	removed  map[string]string // buckets of removed limits, and their rule
	numbers  map[string]int64  // the last number that buckets of a limit's name got, 0 for none yet
	buckets  map[string]*limiter.Model
	lines    map[string]*line
	holds    map[string]hold
	closed   map[string]int64 // "queue" or key:value, until ms
	shadowed map[string]int64
}

// New returns an empty queue.
func New(now, lease int64, maxReclaims int) *Queue {
	return &Queue{
		Now: now, Lease: lease, MaxReclaims: maxReclaims, Jobs: map[string]*Job{}, OwnBucket: &limiter.Model{}, Limits: map[string]*Limit{},
		removed: map[string]string{}, numbers: map[string]int64{}, buckets: map[string]*limiter.Model{}, lines: map[string]*line{}, holds: map[string]hold{},
		closed: map[string]int64{}, shadowed: map[string]int64{},
	}
}

// In lists the jobs in a state, by place.
func (q *Queue) In(state string, also ...func(*Job) bool) []*Job {
	var found []*Job
	for _, j := range q.Jobs {
		if j.State == state && (len(also) == 0 || also[0](j)) {
			found = append(found, j)
		}
	}
	slices.SortFunc(found, func(a, b *Job) int { return cmp.Compare(a.Place(), b.Place()) })
	return found
}

// Shadowed is how many jobs a shadow limit would have refused.
func (q *Queue) Shadowed(limit string) int64 { return q.shadowed[limit] }

// DueAt is when a delayed job is due, or judged again.
func (q *Queue) DueAt(j *Job) int64 {
	if j.Line == "" {
		return j.Due
	}
	l := q.lines[j.Line]
	if l.open {
		return q.Now
	}
	return max(q.Now, l.wake)
}

// ---- Enqueue, settle, change ----

// Enqueue answers "new", "duplicate" or "heavy".
func (q *Queue) Enqueue(j Job, delay int64) string {
	if q.Jobs[j.ID] != nil {
		return "duplicate"
	}
	for _, l := range q.limits() {
		if value, n := l.asked(&j); l.Unit != "" && !l.Shadow && n > q.rule(l, value).Capacity() {
			return "heavy"
		}
	}
	q.seq++
	j.Seq, j.State = q.seq, Wait
	if delay > 0 {
		j.State, j.Due = Delayed, q.Now+delay
	}
	q.Jobs[j.ID] = &j
	return "new"
}

// Settle ends a lease that lives. The outcomes are those of the claim; costs are the real ones.
func (q *Queue) Settle(j *Job, outcome string, wait int64, key string, costs map[string]int64) {
	for _, p := range j.places {
		q.open(p)
	}
	for _, unit := range slices.Sorted(maps.Keys(costs)) {
		for _, l := range q.limits() {
			value, has := j.Keys[l.By]
			if l.Unit != unit || l.By != "" && !has {
				continue
			}
			id := l.id(value)
			b, rule := q.bucket(id), q.rule(l, value)
			t, same := j.took[id]
			for other, of := range j.took { // what a limit of that name took before, under another id, is not given back
				if limit, v := SplitBucket(other); !same && limit == l.Name && v == value {
					t = of
				}
			}
			if costs[unit] < t.n {
				if same {
					must(b.GiveBack(q.Now, rule, t.n-costs[unit], t.mark))
				}
				q.open(id)
			} else {
				must(b.Charge(q.Now, rule, costs[unit]-t.n))
			}
		}
	}
	j.places, j.took = nil, nil
	switch outcome {
	case "complete":
		delete(q.Jobs, j.ID)
	case "retry":
		j.Attempts++
		j.Reclaims = 0 // its handler returned: it is none that its workers are lost by
		j.State, j.Due, j.Reason = Delayed, q.Now+wait, "retry"
	case "defer":
		j.Deferrals++
		j.Reclaims = 0
		j.State, j.Due = Delayed, q.Now+wait
	case "back":
		j.State = Wait
	case "limited":
		j.Deferrals++
		j.Reclaims = 0
		j.State = Wait
		what := "queue"
		if key != "" {
			what = key + ":" + j.Keys[key]
		}
		q.closed[what] = max(q.closed[what], q.Now+wait)
	case "dead":
		j.Attempts++
		j.State, j.Reason = Dead, "dead_lettered"
	}
}

// Close closes the queue (key ""), or a key value; a wait of 0 opens it again.
func (q *Queue) Close(key, value string, wait int64) {
	what := "queue"
	if key != "" {
		what = key + ":" + value
	}
	if wait > 0 {
		q.closed[what] = max(q.closed[what], q.Now+wait)
		return
	}
	delete(q.closed, what)
	q.open("=" + what)
}

// SetLimit sets a limit by name anew, or changes Max, Window, Burst, Shadow and overrides.
func (q *Queue) SetLimit(l Limit) {
	if old := q.Limits[l.Name]; old != nil {
		l.bucket = old.bucket
	} else {
		l.bucket = q.bucketName(l.Name, l.signature())
		delete(q.removed, l.bucket)
	}
	q.Limits[l.Name] = &l
	if l.Algorithm == Concurrency {
		for _, j := range q.In(Active, func(j *Job) bool { return j.End > q.Now }) {
			if value, n := l.asked(j); n > 0 && !slices.Contains(j.places, l.id(value)) {
				j.places = append(j.places, l.id(value))
			}
		}
	}
	q.openAll()
}

// RemoveLimit removes a limit by name.
func (q *Queue) RemoveLimit(name string) {
	l := q.Limits[name]
	q.removed[l.bucket] = l.signature()
	delete(q.Limits, name)
	delete(q.shadowed, name)
	q.openAll()
}

// ResetLimit makes the budget of a limit by name whole; value is that of one bucket.
func (q *Queue) ResetLimit(name string, value *string) {
	l := q.Limits[name]
	switch {
	case l.By == "":
		q.reset(l.bucket)
	case value != nil:
		q.reset(l.id(*value))
	default:
		l.bucket = q.bucketName(name, "")
	}
	q.openAll()
}

// reset makes a bucket whole: what leases took of it is not given back again.
func (q *Queue) reset(id string) {
	q.bucket(id).Reset()
	delete(q.holds, id)
	for _, j := range q.Jobs {
		if t, took := j.took[id]; took {
			j.took[id] = taken{t.n, ""}
		}
	}
}

func (l *Limit) signature() string {
	return string(l.Algorithm) + " " + l.By + " " + l.Unit
}

// bucketName is what buckets are called: those of a removed limit of the same rule are found again, others get a name that none had.
func (q *Queue) bucketName(name, signature string) string {
	for id, rule := range q.removed {
		if limit, _ := SplitBucket(id); limit == name && rule == signature {
			return id
		}
	}
	last, used := q.numbers[name]
	if !used {
		q.numbers[name] = 0
		return name
	}
	q.numbers[name] = max(q.Now, last+1)
	return fmt.Sprintf("%s~%d", name, q.numbers[name])
}

// RunNow brings a delayed job back.
func (q *Queue) RunNow(j *Job) {
	switch {
	case j.Line != "":
		q.leave(j)
	case !j.Sent:
		q.seq++
		j.Seq = q.seq
	}
	j.State, j.Sent = Wait, false
}

// Delete removes a job that is not active.
func (q *Queue) Delete(j *Job) {
	if j.Line != "" {
		q.leave(j)
	}
	delete(q.Jobs, j.ID)
}

// leave takes a job out of its line, whose head is judged anew.
func (q *Queue) leave(j *Job) {
	id := j.Line
	j.Line = ""
	q.open(id)
}

// Redrive brings a dead job back.
func (q *Queue) Redrive(j *Job) {
	q.seq++
	j.Seq = q.seq
	j.State, j.Attempts, j.Reclaims, j.Reason = Wait, 0, 0, ""
}

// ---- Limits and buckets ----

func (q *Queue) limits() []*Limit {
	var list []*Limit
	for _, name := range slices.Sorted(maps.Keys(q.Limits)) {
		list = append(list, q.Limits[name])
	}
	return list
}

// asked is the key value and the cost that a job spends from the limit; 0 if it does not fall under it.
func (l *Limit) asked(j *Job) (value string, n int64) {
	if l.By != "" {
		v, has := j.Keys[l.By]
		if !has {
			return "", 0
		}
		value = v
	}
	if l.Unit == "" {
		return value, 1
	}
	return value, j.Cost[l.Unit]
}

func (l *Limit) id(value string) string {
	if l.By == "" {
		return l.bucket
	}
	return l.bucket + ":" + value
}

func (q *Queue) rule(l *Limit, value string) limiter.Limit {
	rule := l.Limit
	if o, has := l.Overrides[value]; has && l.By != "" {
		rule = o
		rule.Algorithm = l.Algorithm
		if rule.Window == 0 {
			rule.Window = l.Window
		}
	}
	if rule.Algorithm == Concurrency {
		rule.Algorithm = limiter.FixedWindow
	}
	return rule
}

func (q *Queue) bucket(id string) *limiter.Model {
	b := q.buckets[id]
	if b == nil {
		b = &limiter.Model{}
		q.buckets[id] = b
	}
	return b
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// head is the first job of a line, nil for none.
func (q *Queue) head(id string) *Job {
	var first *Job
	for _, j := range q.Jobs {
		if j.Line == id && (first == nil || j.Place() < first.Place()) {
			first = j
		}
	}
	return first
}

// open lets the head of a line be judged by the next claim.
func (q *Queue) open(id string) {
	if q.head(id) == nil {
		delete(q.lines, id)
	} else {
		q.lines[id].open = true
	}
}

func (q *Queue) openAll() {
	for _, id := range slices.Collect(maps.Keys(q.lines)) {
		q.open(id)
	}
}

// SplitBucket is the limit and the key value of a bucket's id.
func SplitBucket(id string) (limit, value string) {
	limit, value, _ = strings.Cut(id, ":")
	limit, _, _ = strings.Cut(limit, "~")
	return limit, value
}
