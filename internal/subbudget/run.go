package subbudget

import (
	"container/heap"

	"github.com/echomq/emq/limiter"
)

// Bug is a rule of the plan that a run breaks, to show that its replay notices.
type Bug string

// The bugs.
const (
	None          Bug = ""
	DebitAfterUse Bug = "debit after use"            // a lease is promised what remains, and debits what it used at its end
	Outlives      Bug = "outlives its window"        // a lease ends when its units are used, never before
	FullBurst     Bug = "full burst"                 // the coordinator's burst is the budget's
	FromReceipt   Bug = "term from receipt"          // what is left of a lease is counted from when the reply comes
	ReturnsTwice  Bug = "returns again when unheard" // a return whose reply was lost is sent again
)

// Setup is what is simulated. Times are in virtual ms.
type Setup struct {
	Seed   uint64
	Budget limiter.Limit // fixed_window or token_bucket
	Shards int
	Lease  int64   // units that a shard asks for
	Exact  bool    // it asks for no more than its waiting jobs need
	Keep   bool    // unused units are not given back
	Term   int64   // how long a lease lasts
	Load   float64 // demand, as a share of the budget
	Hot    float64 // share of the demand on the first shard; 0 for the same on each
	Bursts bool    // nine tenths of the demand come within the first fifth of every other window
	Faults bool    // shards crash every 5 s or so and are away for 0.5 s; of the calls 2 % are lost, and 2 % of the replies late
	Length int64   // of the run, in windows
	Bug    Bug
}

// Result is what came of it.
type Result struct {
	Admitted []int64 // when, in order
	Over     int64   // admissions that the budget would not have granted at their time
	Calls    int64   // made to the coordinator
}

// Under is the share of what one server would have admitted, as [OneServer] says, that was not.
func (r Result) Under(oneServer int64) float64 {
	return 1 - float64(len(r.Admitted))/float64(oneServer)
}

// CallsPerJob is how many calls the coordinator got for each job.
func (r Result) CallsPerJob() float64 { return float64(r.Calls) / float64(len(r.Admitted)) }

const (
	mostAsks = 8   // of a shard, under way at a time
	timeout  = 50  // after which a reply counts as lost
	crashes  = 5e3 // mean time between crashes of a shard
	downtime = 500
	trouble  = 0.02 // share of calls lost; share of replies late
)

// Run plays a setup.
func Run(setup Setup) Result {
	r := &run{Setup: setup, world: newWorld(setup), rule: setup.rule()}
	for i := range setup.Shards {
		s := &shard{}
		r.arrivals(s, r.demand[i])
		for _, at := range r.crashes[i] {
			r.at(at, func() { s.crash() })
			r.at(at+downtime, func() { s.down = false; r.serve(s) })
		}
	}
	for len(r.events) > 0 && r.events[0].at < r.end {
		e := heap.Pop(&r.events).(event)
		r.now = e.at
		e.do()
	}
	r.result.Over = r.replay()
	return r.result
}

// rule is the coordinator's.
func (s Setup) rule() limiter.Limit {
	rule := s.Budget
	if rule.Algorithm == limiter.TokenBucket && s.Bug != FullBurst {
		window := rule.Window.Milliseconds()
		rule.Burst = rule.Capacity() - (s.Term*rule.Max+window-1)/window
	}
	return rule
}

type run struct {
	Setup
	world
	rule    limiter.Limit
	budget  limiter.Model
	windows []window // that the budget opened
	now     int64
	events  events
	made    int64
	result  Result
}

type window struct{ from, to int64 }

type shard struct {
	waiting int64
	leases  []*lease
	asks    int   // under way
	most    int   // of them at a time: it doubles with each that was granted in full, and one that was not makes it 1
	asked   int64 // units of those
	again   int64 // it was told to ask no sooner
	down    bool
	life    int // crashes so far
}

// lease are units that a shard may use before its end.
type lease struct {
	left, used int64
	until      int64
	mark       string // where they were taken
	lapsed     bool   // its window is over by then: there is nothing to give back to
}

func (s *shard) crash() {
	*s = shard{waiting: s.waiting, down: true, life: s.life + 1}
}

// arrivals lets jobs come to a shard.
func (r *run) arrivals(s *shard, times []int64) {
	if len(times) == 0 {
		return
	}
	r.at(times[0], func() {
		s.waiting++
		r.serve(s)
		r.arrivals(s, times[1:])
	})
}

// serve admits what waits at a shard, and asks for more units if it has none left.
func (r *run) serve(s *shard) {
	if s.down {
		return
	}
	for len(s.leases) > 0 && s.waiting > 0 {
		l := s.leases[0]
		n := min(l.left, s.waiting)
		for range n {
			r.result.Admitted = append(r.result.Admitted, r.now)
		}
		s.waiting, l.left, l.used = s.waiting-n, l.left-n, l.used+n
		if l.left == 0 {
			r.finish(s, l)
		}
	}
	for s.asks < max(1, s.most) && s.waiting > s.asked && r.now >= s.again {
		n := r.Lease
		if r.Exact {
			n = min(n, s.waiting-s.asked)
		}
		r.ask(s, n)
	}
}

// ask is a call for n units.
func (r *run) ask(s *shard, n int64) {
	sent, life, open := r.now, s.life, true
	closed := func() {
		if open {
			s.asks, s.asked, open = s.asks-1, s.asked-n, false
		}
	}
	s.asks, s.asked = s.asks+1, s.asked+n
	r.after(timeout, func() {
		if s.life == life && open {
			closed()
			r.serve(s)
		}
	})
	r.call(func() func() {
		granted, span, wait, mark := r.grant(n)
		return func() {
			if s.life != life {
				return
			}
			closed()
			if granted > 0 {
				r.hold(s, &lease{left: granted, until: sent + span, mark: mark, lapsed: span < r.Term}, span)
			}
			s.most = min(mostAsks, 2*max(1, s.most))
			if granted < n {
				s.most, s.again = 1, r.now+wait
				r.at(s.again, func() { r.serve(s) })
			}
			r.serve(s)
		}
	})
}

// grant is the coordinator's part: units, for how long, and when to ask for the rest.
func (r *run) grant(n int64) (granted, span, wait int64, mark string) {
	mark = must(r.budget.Mark(r.now, r.rule))
	var d limiter.Decision
	if r.Bug == DebitAfterUse {
		d = must(r.budget.Peek(r.now, r.rule, 0))
		d.Granted = min(n, d.Remaining)
	} else {
		d = must(r.budget.TakeUpTo(r.now, r.rule, n))
	}
	span = r.Term
	if left := d.ResetAfter.Milliseconds(); r.rule.Algorithm != limiter.TokenBucket && left > 0 {
		r.noteWindow(r.now + left)
		span = min(span, left)
	}
	if d.Granted < n {
		wait = min(r.Term, max(1, must(r.budget.Peek(r.now, r.rule, n-d.Granted)).RetryAfter.Milliseconds()))
	}
	return d.Granted, span, wait, mark
}

func (r *run) noteWindow(end int64) {
	if n := len(r.windows); n == 0 || r.windows[n-1].to != end {
		r.windows = append(r.windows, window{r.now, end})
	}
}

// hold lets a shard use a lease until its end.
func (r *run) hold(s *shard, l *lease, span int64) {
	switch r.Bug {
	case Outlives:
		l.until = r.end
	case FromReceipt:
		l.until = r.now + span
	}
	s.leases = append(s.leases, l)
	if l.until <= r.now {
		r.finish(s, l)
		return
	}
	life := s.life
	r.at(l.until, func() {
		if s.life == life {
			r.finish(s, l)
		}
	})
}

// finish takes a lease that is used up or over from its shard, and then gives back what it did not use.
func (r *run) finish(s *shard, l *lease) {
	for i, held := range s.leases {
		if held == l {
			s.leases = append(s.leases[:i:i], s.leases[i+1:]...)
			if r.Bug == DebitAfterUse {
				r.call(func() func() {
					check(r.budget.Charge(r.now, r.rule, l.used))
					return func() {}
				})
			} else if l.left > 0 && !r.Keep && !l.lapsed {
				r.giveBack(l)
			}
			return
		}
	}
}

func (r *run) giveBack(l *lease) {
	heard := false
	r.call(func() func() {
		check(r.budget.GiveBack(r.now, r.rule, l.left, l.mark))
		return func() { heard = true }
	})
	if r.Bug == ReturnsTwice {
		r.after(timeout, func() {
			if !heard {
				r.giveBack(l)
			}
		})
	}
}

// call lets the coordinator do something and the caller take its reply, unless either is lost on its way.
func (r *run) call(do func() (reply func())) {
	r.result.Calls++
	lost := r.Faults && r.net.Float64() < trouble
	there := lost && r.net.IntN(2) == 0 // only the reply is lost
	late := int64(0)
	if r.Faults && r.net.Float64() < trouble {
		late = r.net.Int64N(2 * r.Budget.Window.Milliseconds())
	}
	if lost && !there {
		return
	}
	back := r.delay() + late
	r.after(r.delay(), func() {
		if reply := do(); !lost {
			r.after(back, reply)
		}
	})
}

func (r *run) delay() int64 { return 1 + r.net.Int64N(3) }

// replay counts the admissions that the budget would not have granted at their time. The windows of a fixed window are those that the
// coordinator opened, unless the clock says where they begin.
func (r *run) replay() (over int64) {
	var whole limiter.Model
	opened := r.Budget.Algorithm != limiter.TokenBucket && !r.Budget.Aligned
	next := 0
	for i, n := 0, 0; i < len(r.result.Admitted); i += n {
		now := r.result.Admitted[i]
		for n = 1; i+n < len(r.result.Admitted) && r.result.Admitted[i+n] == now; n++ {
		}
		for opened && next < len(r.windows) && r.windows[next].from <= now {
			whole.Put("0", r.windows[next].to)
			next++
		}
		within := !opened || next > 0 && now < r.windows[next-1].to
		if over += int64(n); within {
			over -= must(whole.TakeUpTo(now, r.Budget, int64(n))).Granted
		}
	}
	return over
}

// event is something that happens; of two at the same time the one that was made first.
type event struct {
	at, made int64
	do       func()
}

func (r *run) after(ms int64, do func()) { r.at(r.now+ms, do) }

func (r *run) at(at int64, do func()) {
	r.made++
	heap.Push(&r.events, event{at, r.made, do})
}

type events []event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].made < e[j].made
}
func (e *events) Push(x any) { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
