package ledger

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/echomq/emq/internal/model"
)

// Invariants are what a run is held to.
var Invariants = []struct{ Name, Rule string }{
	{"I1", "nothing lost: every enqueue that returned well is completed, dead, deleted or still there"},
	{"I2", "nothing invented: every start is of a job that somebody enqueued, with the payload that it was given"},
	{"I3", "leases exclude: a job is granted again only after its lease ended or was given back"},
	{"I4", "one completion: a job completes once at most, by the lease that is live"},
	{"I5", "overlaps explained: two runs of one job overlap only if the lease of the first had ended"},
	{"I6", "tokens rise: each lease has a later token than those before it"},
	{"I7", "attempts right: only failures spend attempts"},
	{"I8", "budget: no claim grants more, or less while jobs wait, than the limits allow"},
	{"I9", "bounded recovery: a job whose worker is lost goes back within 6 s of the end of its lease"},
	{"I10", "no leaks: only known keys are left, each of a limit by rate with a time to live, and no goroutine or descriptor"},
}

// late is how long after the end of a lease its job may go back to wait.
const late = 6000 // ms

// forget is how long, in ms, what is over is remembered: longer than a stopped process stays stopped.
const forget = 3 * 60 * 1000

// Violation is a breach of an invariant.
type Violation struct {
	Invariant string `json:"invariant"`
	Queue     string `json:"queue,omitempty"`
	Text      string `json:"text"`
}

// Counts are what a run proved.
type Counts struct {
	Enqueued  int `json:"enqueued"`
	Claims    int `json:"claims"`
	Admitted  int `json:"admitted"`
	SentBack  int `json:"sent_back"`
	Windows   int `json:"windows"` // fixed ones that opened
	Completed int `json:"completed"`
	Dead      int `json:"dead"`
	Reclaimed int `json:"reclaimed"` // leases that ran out
	Starts    int `json:"starts"`
	Overlaps  int `json:"overlaps_explained"`

	Over     int   `json:"over"`
	Under    int   `json:"under"`
	Lost     int   `json:"lost"`
	RunTwice int   `json:"run_twice"` // completed more than once
	LateMS   int64 `json:"recovery_max_ms"`
}

// Checker checks one queue. Feed it the audit stream and the ledger in the order in which they are read, the audit first: what a
// process did with a lease is in the ledger after the audit has the lease.
type Checker struct {
	Counts
	Violations []Violation
	More       int // violations beyond those kept

	queue  string
	sum    func(job string) string // what the payload of a job must be
	replay model.Replayer
	judge  bool // the replay goes on
	jobs   map[string]*job
	tokens map[string]int64 // of claims to their ms
	last   uint64           // token
	now    int64
	swept  int64
}

type job struct {
	tried, stored, seen bool // by the ledger, the same, in the audit
	attempts            int
	token               string // live
	end                 int64  // of that lease, ms
	over                map[string]bool
	runs                map[string]int // token to pid of runs that have not ended
	completed           int
	gone                int64 // ms when it completed or was deleted; 0
}

// mostKept is how many violations are kept.
const mostKept = 50

// New returns a checker of a queue. sum is what the payload of a job must come to; leases is how many a job may lose.
func New(queue string, leases int, sum func(job string) string) *Checker {
	return &Checker{queue: queue, sum: sum, replay: model.Replayer{MaxReclaims: leases}, judge: true, jobs: map[string]*job{}, tokens: map[string]int64{}}
}

func (c *Checker) breach(invariant, format string, args ...any) {
	if len(c.Violations) >= mostKept {
		c.More++
		return
	}
	c.Violations = append(c.Violations, Violation{invariant, c.queue, fmt.Sprintf(format, args...)})
}

func (c *Checker) job(id string) *job {
	j := c.jobs[id]
	if j == nil {
		j = &job{}
		c.jobs[id] = j
	}
	return j
}

// Event takes the next line of the ledger.
func (c *Checker) Event(e Event) {
	switch e.Kind {
	case Try:
		c.job(e.Job).tried = true
	case Stored:
		j := c.job(e.Job)
		j.stored = true
		if !j.seen && j.gone == 0 {
			c.Lost++
			c.breach("I1", "job %s: its enqueue returned well at %d, yet no script stored it", e.Job, e.At)
		}
	case Refused:
		if j := c.job(e.Job); j.seen {
			c.breach("I1", "job %s: its enqueue was refused at %d, yet it is stored: %s", e.Job, e.At, e.Note)
		}
	case Start:
		c.start(e)
	case End:
		if j := c.jobs[e.Job]; j != nil {
			delete(j.runs, e.Token)
		}
	case Killed:
		for _, j := range c.jobs {
			for token, pid := range j.runs {
				if pid == e.Pid {
					delete(j.runs, token)
				}
			}
		}
	}
}

func (c *Checker) start(e Event) {
	c.Starts++
	j := c.jobs[e.Job]
	_, claimed := c.tokens[e.Token]
	switch {
	case j == nil || !claimed:
		c.breach("I2", "job %s was started by process %d at %d with token %s, which no claim gave", e.Job, e.Pid, e.At, e.Token)
		return
	case e.Sum != c.sum(e.Job):
		c.breach("I2", "job %s was started by process %d at %d with another payload than it was given", e.Job, e.Pid, e.At)
	}
	for token := range j.runs {
		if token == e.Token {
			c.breach("I5", "job %s was started twice under one lease, %s, at %d", e.Job, e.Token, e.At)
		} else if j.over[token] {
			c.Overlaps++
		} else {
			c.breach("I5", "job %s was started under %s at %d while it ran under %s, whose lease had not ended", e.Job, e.Token, e.At, token)
		}
	}
	if j.runs == nil {
		j.runs = map[string]int{}
	}
	j.runs[e.Token] = e.Pid
	if e.Token == j.token && e.Attempt != j.attempts+1 {
		c.breach("I7", "job %s was started at %d as attempt %d; it had failed %d times", e.Job, e.At, e.Attempt, j.attempts)
	}
}

// Audit takes the next entry of the audit stream.
func (c *Checker) Audit(e map[string]string) {
	c.now = number(e["at"])
	if c.judge {
		over, under := c.replay.Over, c.replay.Under
		first := c.replay.First
		c.replay.First = ""
		err := c.replay.Add(e)
		if c.replay.First != "" {
			c.breach("I8", "%s", c.replay.First)
		}
		if first != "" {
			c.replay.First = first
		}
		c.Over += c.replay.Over - over
		c.Under += c.replay.Under - under
		if err != nil {
			c.judge = false
			c.Over++ // nothing after it can be told
			c.breach("I8", "the audit stream and the rules do not agree at %d, so that nothing after it is judged: %v; the entry: %s", c.now, err, text(e))
		}
	}
	switch e["op"] {
	case "enqueue":
		for _, id := range strings.Fields(e["ids"]) {
			c.Enqueued++
			c.job(id).seen = true
		}
	case "claim":
		c.claim(e)
	case "extend":
		for _, id := range strings.Fields(e["ids"]) {
			if j := c.jobs[id]; j != nil {
				j.end = c.now + number(e["lease"])
			}
		}
	case "settle":
		c.settle(e)
	case "redrive":
		for _, id := range strings.Fields(e["ids"]) {
			if j := c.jobs[id]; j != nil {
				j.attempts = 0
				c.Dead--
			}
		}
	case "remove", "drain":
		for _, id := range strings.Fields(e["ids"]) {
			if j := c.jobs[id]; j != nil {
				j.gone = c.now
			}
		}
	}
	if c.now-c.swept > forget/10 {
		c.sweep()
	}
}

func (c *Checker) claim(e map[string]string) {
	c.Claims++
	if e["opened"] == "1" {
		c.Windows++
	}
	if e["sent_back"] != "" {
		c.SentBack += 1 + strings.Count(e["sent_back"], ",")
	}
	for _, id := range strings.Fields(e["reclaimed"]) {
		c.expired(id)
	}
	for _, entry := range strings.FieldsFunc(e["dead"], func(r rune) bool { return r == ' ' || r == ',' }) {
		if j := c.jobs[entry]; j != nil {
			c.Dead++
			if j.token != "" {
				c.expired(entry)
			}
		}
	}
	granted := strings.Fields(e["granted"])
	c.Admitted += len(granted)
	if len(granted) == 0 {
		return
	}
	token := e["token"]
	number16, _, _ := strings.Cut(token, "-")
	n, err := strconv.ParseUint(number16, 16, 64)
	if err != nil || n <= c.last {
		c.breach("I6", "the claim at %d gave token %s after %x", c.now, token, c.last)
	}
	c.last = max(c.last, n)
	c.tokens[token] = c.now
	for _, id := range granted {
		j := c.job(id)
		switch {
		case !j.seen:
			c.breach("I2", "job %s was granted at %d, which no enqueue stored", id, c.now)
		case j.gone > 0:
			c.breach("I3", "job %s was granted at %d after it was over at %d", id, c.now, j.gone)
		case j.token != "":
			c.breach("I3", "job %s was granted at %d under %s while lease %s ran until %d", id, c.now, token, j.token, j.end)
		}
		j.token, j.end = token, c.now+number(e["lease"])
	}
}

// expired: a claim took a lease for over.
func (c *Checker) expired(id string) {
	j := c.jobs[id]
	if j == nil || j.token == "" {
		c.breach("I3", "job %s was reclaimed at %d without a lease", id, c.now)
		return
	}
	c.Reclaimed++
	behind := c.now - j.end
	if behind < 0 {
		c.breach("I3", "job %s was reclaimed at %d, %d ms before lease %s ended", id, c.now, -behind, j.token)
	}
	c.LateMS = max(c.LateMS, behind)
	if behind > late {
		c.breach("I9", "job %s was reclaimed at %d, %d ms after lease %s ended", id, c.now, behind, j.token)
	}
	j.release(j.token)
}

// release: a lease is over.
func (j *job) release(token string) {
	if j.over == nil {
		j.over = map[string]bool{}
	}
	j.over[token] = true
	j.token = ""
}

func (c *Checker) settle(e map[string]string) {
	if e["jobs"] == "" {
		return
	}
	for _, settled := range strings.Split(e["jobs"], ",") {
		w := strings.Fields(settled)
		if len(w) < 2 {
			continue
		}
		outcome, _, _ := strings.Cut(w[0], ":")
		id, token, _ := strings.Cut(w[1], "|")
		j := c.job(id)
		if j.token == "" || j.token != token {
			c.breach("I4", "job %s was settled (%s) at %d by lease %s; live was %q", id, outcome, c.now, token, j.token)
		}
		j.release(token)
		switch outcome {
		case "complete":
			c.Completed++
			j.completed++
			if j.completed > 1 {
				c.RunTwice++
				c.breach("I4", "job %s completed again at %d, by lease %s", id, c.now, token)
			}
			j.gone = c.now
		case "retry":
			j.attempts++
		case "dead":
			c.Dead++
		}
	}
}

// sweep forgets what was over long ago.
func (c *Checker) sweep() {
	c.swept = c.now
	for id, j := range c.jobs {
		if j.gone > 0 && c.now-j.gone > forget {
			delete(c.jobs, id)
		}
	}
	for token, at := range c.tokens {
		if c.now-at > 2*forget {
			delete(c.tokens, token)
		}
	}
}

// Finish says what is missing at the end; stored is whether the server still has a job.
func (c *Checker) Finish(stored func(job string) bool) {
	var ids []string
	for id := range c.jobs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		j := c.jobs[id]
		if j.seen && !j.tried {
			c.breach("I2", "job %s is stored and nobody enqueued it", id)
		}
		if j.gone == 0 && (j.stored || j.seen) && !stored(id) {
			c.Lost++
			c.breach("I1", "job %s is neither completed nor dead nor deleted, and the server does not have it", id)
		}
	}
}

func text(e map[string]string) string {
	var parts []string
	for k, v := range e {
		if v != "" {
			parts = append(parts, k+"="+v)
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
