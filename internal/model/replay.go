package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
)

// Report is what a replay found.
type Report struct {
	Claims, Granted, SentBack int
	Over                      int // grants that the model refuses, or that are not the next in order
	Under                     int // grants that the model makes and the claim did not, though it asked for more
	First                     string
	Grants                    []Grant
}

// Grant is one job handed out.
type Grant struct {
	ID   string
	At   int64 // ms
	Keys map[string]string
}

// Replay runs a queue's audit stream through the model: what each script did is done to the model, and each claim is held to what the
// model's next claim does. The order of the stream is the order of execution, so no clocks are compared.
func Replay(entries []map[string]string, maxReclaims int) (Report, *Queue, error) {
	r := Replayer{MaxReclaims: maxReclaims, KeepGrants: true}
	for _, e := range entries {
		if err := r.Add(e); err != nil {
			return r.Report, r.Queue, err
		}
	}
	return r.Report, r.Queue, nil
}

// Replayer is [Replay] entry by entry.
type Replayer struct {
	Report
	MaxReclaims int
	KeepGrants  bool   // in Report.Grants
	Queue       *Queue // as it is after the last entry; nil before the first
}

// Add takes the next entry. After an error, which says what the model and the stream do not agree about, it is of no more use.
func (r *Replayer) Add(e map[string]string) error {
	at := number(e["at"])
	if r.Queue == nil {
		r.Queue = New(at, 30_000, r.MaxReclaims)
	}
	r.Queue.Now = at
	if e["op"] == "claim" {
		r.claim(r.Queue, e)
		if !r.KeepGrants {
			r.Grants = r.Grants[:0]
		}
		return nil
	}
	return r.Queue.apply(e)
}

func (r *Report) claim(q *Queue, e map[string]string) {
	q.Lease = number(e["lease"])
	q.Own = limiter.Limit{Algorithm: limiter.Algorithm(e["algorithm"]), Max: number(e["max"]), Window: ms(number(e["duration"])), Burst: number(e["burst"])}
	granted := strings.Fields(e["granted"])
	want := q.Claim(int(number(e["k"])))
	r.Claims++
	r.Granted += len(granted)
	if e["sent_back"] != "" {
		r.SentBack += 1 + strings.Count(e["sent_back"], ",")
	}
	for i, id := range granted {
		if i >= len(want.Granted) || want.Granted[i] != id {
			r.Over++
			r.note("at %s a claim granted %s, the model %v", e["at"], e["granted"], want.Granted)
		}
		if j := q.Jobs[id]; j != nil {
			r.Grants = append(r.Grants, Grant{id, q.Now, j.Keys})
		}
	}
	if lacked := len(want.Granted) - len(granted); lacked > 0 && e["more"] != "1" {
		r.Under += lacked
		r.note("at %s a claim of %s granted %q, the model %v", e["at"], e["k"], e["granted"], want.Granted)
	}
}

func (r *Report) note(format string, args ...any) {
	if r.First == "" {
		r.First = fmt.Sprintf(format, args...)
	}
}

// apply does to the model what a script did.
func (q *Queue) apply(e map[string]string) error {
	ids := strings.Fields(e["ids"])
	switch e["op"] {
	case "enqueue":
		for i, place := range strings.Fields(e["places"]) {
			j := Job{ID: ids[i], Priority: int(place[0] - '0')}
			place, due, _ := strings.Cut(place[2:], "@")
			h, err := lua.ParseRecord("2" + strings.Repeat("0", 32) + e["header "+strconv.Itoa(i+1)] + ".")
			if err != nil {
				return err
			}
			j.Keys, j.Cost = h.Header.Keys, h.Header.Cost
			if answer := q.Enqueue(j, max(0, number(due)-q.Now)); answer != "new" {
				return fmt.Errorf("job %s was enqueued at %d, the model says %s", j.ID, q.Now, answer)
			}
			q.Jobs[j.ID].Seq = number(place)
			q.seq = max(q.seq, number(place))
		}
	case "settle":
		if e["jobs"] == "" {
			return nil
		}
		for _, settled := range strings.Split(e["jobs"], ",") {
			w := strings.SplitN(settled, " ", 4)
			outcome, key, _ := strings.Cut(w[0], ":")
			id, _, _ := strings.Cut(w[1], "|")
			costs := map[string]int64{}
			for _, cost := range strings.Fields(strings.Join(w[3:], "")) {
				unit, n, _ := strings.Cut(cost, "=")
				costs[unit] = number(n)
			}
			j := q.Jobs[id]
			if j == nil || j.State != Active {
				return fmt.Errorf("job %s was settled at %d, the model has %+v", id, q.Now, j)
			}
			q.Settle(j, outcome, number(w[2]), key, costs)
		}
	case "extend":
		for _, id := range ids {
			if j := q.Jobs[id]; j != nil && j.State == Active {
				j.End = q.Now + number(e["lease"])
			}
		}
	case "limit":
		value, log, end := q.OwnBucket.State(q.Now)
		switch window := number(e["duration"]); {
		case e["change"] == "reset":
			q.OwnBucket.Reset()
		case e["change"] == "set" && log == nil && window > 0 && end > q.Now+window:
			q.OwnBucket.Put(value, q.Now+window)
		}
	case "named":
		q.applyNamed(e)
	case "close":
		key, value, keyed := strings.Cut(e["what"], ":")
		if !keyed {
			key = ""
		}
		wait := number(e["till"]) - q.Now
		if e["change"] == "reopen" {
			wait = 0
		}
		q.Close(key, value, wait)
	case "pause":
		q.Paused = e["paused"] == "1"
	case "run":
		for _, id := range ids {
			q.RunNow(q.Jobs[id])
		}
	case "redrive":
		for _, id := range ids {
			q.Redrive(q.Jobs[id])
		}
	case "remove", "drain":
		for _, id := range ids {
			q.Delete(q.Jobs[id])
		}
	default:
		return fmt.Errorf("the audit has an entry %q, which the model does not know", e["op"])
	}
	return nil
}

func (q *Queue) applyNamed(e map[string]string) {
	name := e["name"]
	switch e["change"] {
	case "unset":
		q.RemoveLimit(name)
	case "reset":
		if value, has := e["value 1"]; has {
			q.ResetLimit(name, &value)
		} else {
			q.ResetLimit(name, nil)
		}
	default:
		w := lua.ParseNamed(e["limit"])
		l := Limit{Name: name, Limit: limiter.Limit{Algorithm: limiter.Algorithm(w.Algorithm), Max: w.Max, Window: w.Window, Burst: w.Burst}, By: w.By, Unit: w.Unit, Shadow: w.Shadow}
		l.Overrides = map[string]limiter.Limit{}
		if old := q.Limits[name]; old != nil {
			for value, o := range old.Overrides {
				l.Overrides[value] = o
			}
		}
		for i := 1; ; i += 4 {
			value, has := e["value "+strconv.Itoa(i)]
			if !has {
				break
			}
			part := func(n int) string { return e["value "+strconv.Itoa(i+n)] }
			if part(1) == "" {
				delete(l.Overrides, value)
				continue
			}
			l.Overrides[value] = limiter.Limit{Max: number(part(1)), Window: ms(number(part(2))), Burst: number(part(3))}
		}
		q.SetLimit(l)
	}
}

// Most is the largest number of grants within a window, by the times of a replay's grants; by narrows them.
func (r Report) Most(window time.Duration, by func(Grant) bool) (most int) {
	var at []int64
	for _, g := range r.Grants {
		if by(g) {
			at = append(at, g.At)
		}
	}
	slices.Sort(at)
	first := 0
	for i := range at {
		for at[i]-at[first] >= window.Milliseconds() {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
