package model

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/echomq/emq/limiter"
)

// SentBack is a job that a bucket refused; the bucket of the queue's own limit is "".
type SentBack struct {
	ID, Bucket string
	Retry      int64 // ms
}

// Claimed is what one claim does.
type Claimed struct {
	Granted  []string
	SentBack []SentBack // the one that a limit for all refused is the last
	Retry    int64      // ms, of the limits for all; 0 if none refused
	More     bool
	Dead     []string // by their cost
}

// ask is what a job asks of a bucket.
type ask struct {
	id    string
	limit *Limit // nil for a close
	value string
	n     int64
	until int64 // of a close

	refused, behind bool
}

const (
	steps    = 128
	never    = int64(-1)
	infinite = int64(1) << 60
)

// Claim hands out up to k jobs.
func (q *Queue) Claim(k int) (c Claimed) {
	used := q.bringBack()
	c.More = used >= steps
	must(q.OwnBucket.Repair(q.Now, q.Own))
	if q.Paused {
		return c
	}
	for _, l := range q.lines {
		l.open = l.open || l.wake <= q.Now
	}
	for _, a := range q.globals() {
		q.read(a)
	}
	refusals := max(32, steps-used)
	suspect := false
	for {
		j, free := q.next()
		if j == nil {
			break
		}
		if free == 0 {
			c.Retry = infinite
			if len(c.Granted) < k && j.Line == "" {
				c.SentBack = append(c.SentBack, SentBack{ID: j.ID})
			}
			break
		}
		if suspect {
			c.More = c.More || len(c.Granted) < k
			break
		}
		asks := q.asks(j, narrow)
		for _, a := range asks {
			q.read(a)
		}
		blocker, retry := q.judge(j, asks)
		switch {
		case retry == never:
			q.off(j)
			j.State, j.Reason = Dead, "never_fits"
			c.Dead = append(c.Dead, j.ID)
			q.drop(j, asks, true)
			refusals--
		case retry > 0:
			first := j.Line == ""
			q.sendBack(j, asks, blocker, retry)
			if first {
				c.SentBack = append(c.SentBack, SentBack{j.ID, blocker, retry})
			}
			refusals--
		case len(c.Granted) == k:
			return c // it stays
		default:
			q.off(j)
			q.grant(j, asks)
			c.Granted = append(c.Granted, j.ID)
			suspect = j.Reclaims > 0 && j.Reclaims >= q.MaxReclaims-1
		}
		if refusals == 0 {
			c.More = true
			break
		}
	}
	if len(c.Granted) > 0 {
		q.seq++ // the token
	}
	if c.Retry == infinite {
		var by string
		c.Retry, by = q.waitForAll()
		if n := len(c.SentBack); n > 0 && c.SentBack[n-1].Retry == 0 {
			c.SentBack[n-1].Retry, c.SentBack[n-1].Bucket = c.Retry, by
			j := q.Jobs[c.SentBack[n-1].ID]
			j.State, j.Sent, j.Due = Delayed, true, q.Now+c.Retry
			j.Deferrals++
		}
	}
	return c
}

// narrow are the limits that not every job falls under, or not alike.
func narrow(l *Limit) bool { return !l.Shadow && !l.forAll() }

// Explain is what keeps a job that waits, or that a limit sent back, from being handed out: "", 0 for nothing, and how long. It changes
// nothing.
func (q *Queue) Explain(j *Job) (by string, retry int64) {
	if by, retry = q.judge(j, q.asks(j, narrow)); retry == 0 {
		retry, by = q.waitForAll()
	}
	return by, retry
}

// bringBack brings due jobs and ended leases back and says how many.
func (q *Queue) bringBack() int {
	due := q.In(Delayed, func(j *Job) bool { return j.Line == "" && j.Due <= q.Now })
	slices.SortFunc(due, func(a, b *Job) int { return cmp.Or(cmp.Compare(a.Due, b.Due), strings.Compare(a.ID, b.ID)) })
	due = due[:min(len(due), steps)]
	for _, j := range due {
		if !j.Sent {
			q.seq++
			j.Seq = q.seq
		}
		j.State, j.Sent = Wait, false
	}
	ended := q.In(Active, func(j *Job) bool { return j.End <= q.Now })
	slices.SortFunc(ended, func(a, b *Job) int { return cmp.Or(cmp.Compare(a.End, b.End), strings.Compare(a.ID, b.ID)) })
	ended = ended[:min(len(ended), steps-len(due))]
	for _, j := range ended {
		for _, p := range j.places {
			q.open(p)
		}
		j.places, j.took = nil, nil
		j.Reclaims++
		j.State = Wait
		if j.Reclaims >= q.MaxReclaims {
			j.State, j.Reason = Dead, "lost"
		}
	}
	return len(due) + len(ended)
}

// next is the candidate with the lowest place, and how many more the limits for all let through.
func (q *Queue) next() (first *Job, free int64) {
	free = q.freeForAll()
	consider := func(j *Job) {
		if first == nil || j.Place() < first.Place() {
			first = j
		}
	}
	for _, j := range q.Jobs {
		if j.State == Wait || j.Sent && free > 0 {
			consider(j)
		}
	}
	for id, l := range q.lines {
		if j := q.head(id); l.open && j != nil {
			consider(j)
		}
	}
	return first, free
}

// globals are the limits that every job falls under, but the queue's own and its close.
func (q *Queue) globals() (list []ask) {
	for _, l := range q.limits() {
		if l.forAll() && !l.Shadow {
			list = append(list, ask{id: l.bucket, limit: l, n: 1})
		}
	}
	return list
}

func (q *Queue) freeForAll() int64 {
	if q.closed["queue"] > q.Now {
		return 0
	}
	free := infinite
	if q.Own.Max > 0 {
		free = remaining(q.OwnBucket, q.Now, q.Own)
	}
	for _, a := range q.globals() {
		free = min(free, q.free(a))
	}
	return free
}

func (q *Queue) waitForAll() (latest int64, by string) {
	if q.Own.Max > 0 {
		d, err := q.OwnBucket.Peek(q.Now, q.Own, 1)
		must(err)
		latest = d.RetryAfter.Milliseconds()
	}
	if wait := q.closed["queue"] - q.Now; wait > latest {
		latest, by = wait, "=queue"
	}
	for _, a := range q.globals() {
		if wait := q.wait(a, 0); wait > latest {
			latest, by = wait, a.id
		}
	}
	return latest, by
}

// asks is what a job asks of the limits that are meant, and of what is closed for a key value of it.
func (q *Queue) asks(j *Job, meant func(*Limit) bool) (asks []ask) {
	shadow := false
	for _, l := range q.limits() {
		if !meant(l) {
			continue
		}
		shadow = l.Shadow
		if value, n := l.asked(j); n > 0 {
			asks = append(asks, ask{id: l.id(value), limit: l, value: value, n: n})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(j.Keys)) {
		what := key + ":" + j.Keys[key]
		if until := q.closed[what]; until > q.Now && !shadow {
			asks = append(asks, ask{id: "=" + what, n: 1, until: until})
		}
	}
	return asks
}

func remaining(b *limiter.Model, now int64, rule limiter.Limit) int64 {
	d, err := b.Peek(now, rule, 0)
	must(err)
	if d.Remaining < 0 {
		return infinite
	}
	return d.Remaining
}

// inFlight lists the leases that have not ended in a concurrency bucket.
func (q *Queue) inFlight(id string) []*Job {
	return q.In(Active, func(j *Job) bool { return j.End > q.Now && slices.Contains(j.places, id) })
}

func (q *Queue) free(a ask) int64 {
	switch {
	case a.limit == nil:
		return 0
	case a.limit.Algorithm == Concurrency:
		if rule := q.rule(a.limit, a.value); rule.Max > 0 {
			return max(0, rule.Max-int64(len(q.inFlight(a.id))))
		}
		return infinite
	}
	rule := q.rule(a.limit, a.value)
	return remaining(q.bucket(a.id), q.Now, rule)
}

// read is what a claim does to a bucket that it reads, whatever it grants.
func (q *Queue) read(a ask) {
	if a.limit != nil && a.limit.Algorithm != Concurrency {
		must(q.bucket(a.id).Repair(q.Now, q.rule(a.limit, a.value)))
	}
}

// wait is until a bucket grants what is asked and more beside it: 0 now, never.
func (q *Queue) wait(a ask, more int64) int64 {
	switch {
	case a.limit == nil:
		return a.until - q.Now
	case a.n+more > q.capacity(a):
		return never
	case a.n+more <= q.free(a):
		return 0
	case a.limit.Algorithm == Concurrency:
		first := infinite
		for _, j := range q.inFlight(a.id) {
			first = min(first, j.End-q.Now)
		}
		return first
	}
	d, err := q.bucket(a.id).Peek(q.Now, q.rule(a.limit, a.value), a.n+more)
	must(err)
	return d.RetryAfter.Milliseconds()
}

func (q *Queue) capacity(a ask) int64 {
	if a.limit == nil {
		return infinite
	}
	if rule := q.rule(a.limit, a.value); rule.Max > 0 {
		return rule.Capacity()
	}
	return infinite
}

// holdOf is the hold of a bucket that keeps something from a job.
func (q *Queue) holdOf(a ask, j *Job) (hold, bool) {
	h, has := q.held(a)
	return h, has && h.id != j.ID && h.place < j.Place()
}

// held is the hold of a bucket that has not ended; none lasts longer than the bucket's window from now.
func (q *Queue) held(a ask) (hold, bool) {
	h, has := q.holds[a.id]
	if !has || a.limit == nil {
		return hold{}, false
	}
	h.till = min(h.till, q.Now+q.span(a))
	return h, h.till > q.Now
}

// span is the window of a bucket; that of a concurrency limit is a lease.
func (q *Queue) span(a ask) int64 {
	if a.limit.Algorithm == Concurrency {
		return q.Lease
	}
	return q.rule(a.limit, a.value).Window.Milliseconds()
}

// judge returns 0 if a job is granted, never if it never can be, else the bucket in whose line it is to stand and its retry-after.
func (q *Queue) judge(j *Job, asks []ask) (blocker string, latest int64) {
	for i := range asks {
		a := &asks[i]
		if a.n > q.capacity(*a) {
			return a.id, never
		}
		wait := q.wait(*a, 0)
		if h, held := q.holdOf(*a, j); held && a.n > q.free(*a)-h.n {
			wait = h.till - q.Now
			if fits := q.wait(*a, h.n); fits >= 0 {
				wait = min(wait, fits)
			}
		}
		a.refused = wait > 0
		if first := q.head(a.id); first != nil && first.Place() < j.Place() {
			a.behind = true
			wait = max(wait, 1)
			if l := q.lines[a.id]; !l.open {
				wait = max(wait, l.wake-q.Now)
			}
		}
		if wait > latest || wait > 0 && wait == latest && a.id == j.Line {
			blocker, latest = a.id, wait
		}
	}
	return blocker, latest
}

// sendBack lets a job stand in the line of a bucket.
func (q *Queue) sendBack(j *Job, asks []ask, to string, retry int64) {
	if j.Line != to {
		first := q.head(to)
		from := j.Line
		q.off(j)
		j.State, j.Line = Delayed, to
		if from == "" {
			j.Deferrals++
		} else {
			j.moves = min(15, j.moves+1)
		}
		if q.lines[to] == nil {
			q.lines[to] = &line{}
		}
		if first == nil || j.Place() < first.Place() {
			*q.lines[to] = line{wake: q.Now + retry}
		}
	} else {
		*q.lines[to] = line{wake: q.Now + retry}
	}
	if j.moves >= 3 && !q.NoHolds {
		q.hold(j, asks)
	}
}

// off takes a job from where it waits.
func (q *Queue) off(j *Job) {
	from := j.Line
	j.Line, j.Sent = "", false
	if from != "" && q.head(from) == nil {
		delete(q.lines, from)
	}
}

// hold keeps a job's cost in its buckets until the latest retry-after of those that refuse it.
func (q *Queue) hold(j *Job, asks []ask) {
	till := int64(0)
	for _, a := range asks {
		if _, held := q.holdOf(a, j); a.limit == nil || a.behind || held {
			return
		}
		switch {
		case !a.refused:
		case a.limit.Algorithm == Concurrency:
			till = max(till, q.Now+q.Lease)
		default:
			till = max(till, q.Now+q.wait(a, 0))
		}
	}
	for _, a := range asks {
		if till <= q.Now || q.span(a) < till-q.Now {
			continue
		}
		old, had := q.held(a)
		q.holds[a.id] = hold{j.ID, j.Place(), a.n, till}
		if had && (old.id != j.ID || old.till > till || old.n > a.n) {
			q.reopen(a.id, j)
		}
	}
}

// reopen lets a line be judged anew, unless its head was judged just now.
func (q *Queue) reopen(id string, judged *Job) {
	if first := q.head(id); first != nil && first != judged {
		q.lines[id].open = true
	}
}

// drop ends the holds of a job.
func (q *Queue) drop(j *Job, asks []ask, reopen bool) {
	for _, a := range asks {
		if h, has := q.holds[a.id]; has && h.id == j.ID {
			delete(q.holds, a.id)
			if reopen && h.till > q.Now {
				q.reopen(a.id, j)
			}
		}
	}
}

// grant spends what a job asks and gives it a lease.
func (q *Queue) grant(j *Job, asks []ask) {
	q.drop(j, asks, false)
	j.State, j.End, j.moves = Active, q.Now+q.Lease, 0
	j.places, j.took = nil, map[string]taken{}
	if q.Own.Max > 0 {
		_, err := q.OwnBucket.Take(q.Now, q.Own, 1)
		must(err)
	}
	all := append(q.globals(), asks...)
	for _, a := range q.asks(j, func(l *Limit) bool { return l.Shadow }) {
		if a.limit == nil {
			continue
		}
		q.read(a)
		fits := a.n <= q.free(a)
		if !fits {
			q.shadowed[a.limit.Name]++
		}
		if fits || a.limit.Algorithm == Concurrency {
			all = append(all, a)
		}
	}
	for _, a := range all {
		rule := q.rule(a.limit, a.value)
		if a.limit.Algorithm == Concurrency {
			j.places = append(j.places, a.id)
			continue
		}
		mark, err := q.bucket(a.id).Mark(q.Now, rule)
		must(err)
		if a.limit.Unit != "" {
			j.took[a.id] = taken{a.n, mark}
		}
		_, err = q.bucket(a.id).Take(q.Now, rule, a.n)
		must(err)
	}
}

// Budget is a bucket as it stands.
type Budget struct {
	Remaining int64 // -1: no limit
	Retry     int64 // ms until one more unit is granted
	Waiting   int64 // jobs in its line
}

// Budget is the bucket of a limit for a key value. It changes nothing.
func (q *Queue) Budget(limit, value string) Budget {
	l := q.Limits[limit]
	a := ask{id: l.id(value), limit: l, value: value, n: 1}
	b := Budget{Remaining: q.free(a), Retry: q.wait(a, 0)}
	if b.Remaining == infinite {
		b.Remaining = -1
	}
	for _, j := range q.Jobs {
		if j.Line == a.id {
			b.Waiting++
		}
	}
	return b
}
