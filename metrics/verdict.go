package metrics

import (
	"fmt"
	"strings"
	"time"
)

// Word is what a queue does, in one word.
type Word string

// The words, in the order in which one hides the next.
const (
	Broken     Word = "broken"     // its settings are such that no claim obeys them
	Paused     Word = "paused"     // by somebody
	Idle       Word = "idle"       // there is nothing to do now
	Starved    Word = "starved"    // jobs wait, and no worker is there
	Shut       Word = "closed"     // until a time, because what its jobs call refused
	Limited    Word = "limited"    // a limit refuses, and jobs wait for it
	Backlogged Word = "backlogged" // jobs wait, and all workers are full
	Flowing    Word = "flowing"    // jobs run
)

// Verdict is what a queue does and why.
type Verdict struct {
	Word Word
	// Text is the verdict for people: "limited - resumes in 14 s".
	Text string
	// Until is when it goes on by itself; zero when that is not known.
	Until time.Time
	// Limit is the limit that refuses, of [Limited]; empty for the queue's own.
	Limit string
}

// Judge is the verdict on a queue whose limits, jobs and workers are these.
func Judge(all All, n Counts, fleet Fleet) Verdict {
	runnable := n.Wait + n.SentBack
	switch {
	case all.Paused || n.Paused:
		v := Verdict{Word: Paused, Text: "paused"}
		if all.PauseReason != "" {
			v.Text += ": " + all.PauseReason
		}
		return v
	case runnable+n.Active == 0:
		v := Verdict{Word: Idle, Text: "idle"}
		if n.Delayed > 0 {
			v.Text = fmt.Sprintf("idle - %s delayed", count(n.Delayed, "job"))
		}
		return v
	case runnable > 0 && n.Active == 0 && len(fleet.Workers) == 0:
		return Verdict{Word: Starved, Text: "starved - " + wait(runnable) + " and no worker is there"}
	}
	if until, why, closed := closedUntil(all); closed && runnable > 0 {
		return resumes(Verdict{Word: Shut, Text: "closed" + why, Until: until}, all.At)
	}
	if limit, until, limited := limitedBy(all, n); limited {
		v := Verdict{Word: Limited, Text: "limited", Until: until, Limit: limit}
		if limit != "" {
			v.Text += " by " + limit
		}
		return resumes(v, all.At)
	}
	if slots := int64(fleet.Slots()); n.Wait > 0 && slots > 0 && n.Active >= slots {
		return Verdict{Word: Backlogged, Text: fmt.Sprintf("backlogged - %s, %d of %d worker slots are full", wait(n.Wait), min(slots, n.Active), slots)}
	}
	return Verdict{Word: Flowing, Text: "flowing"}
}

// closedUntil is until when the whole queue is closed.
func closedUntil(all All) (until time.Time, why string, closed bool) {
	for _, c := range all.Closed {
		if c.Key == "" {
			if c.Reason != "" {
				why = ": " + c.Reason
			}
			return c.Until, why, true
		}
	}
	return time.Time{}, "", false
}

// limitedBy is the limit for which jobs wait while no others run or wait for a worker.
func limitedBy(all All, n Counts) (name string, until time.Time, limited bool) {
	var waiting int64
	for _, l := range all.Limits {
		if l.Shadow || len(l.Buckets) == 0 {
			continue
		}
		b := l.Buckets[0]
		if l.By == "" && b.RetryAfter > 0 && (l.Name == "" && n.Wait+n.SentBack > 0 || l.Waiting > 0) {
			return l.Name, all.At.Add(b.RetryAfter), true
		}
		if l.Waiting > waiting && n.Wait == 0 && n.Active == 0 {
			waiting, name, limited = l.Waiting, l.Name, true
			until = all.At.Add(b.RetryAfter)
		}
	}
	return name, until, limited
}

func resumes(v Verdict, now time.Time) Verdict {
	if left := v.Until.Sub(now); left > 0 {
		v.Text += " - resumes in " + Short(left)
	}
	return v
}

func wait(n int64) string {
	if n == 1 {
		return "1 job waits"
	}
	return count(n, "job") + " wait"
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Short is a length of time as people say it, to two figures or so: "0.4 s", "14 s", "3 min 20 s", "2 h 5 min", "3 d 4 h".
func Short(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Second:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < time.Hour:
		return pair(d, time.Minute, "min", time.Second, "s")
	case d < 24*time.Hour:
		return pair(d, time.Hour, "h", time.Minute, "min")
	}
	return pair(d, 24*time.Hour, "d", time.Hour, "h")
}

func pair(d, large time.Duration, a string, small time.Duration, b string) string {
	d = d.Round(small)
	text := fmt.Sprintf("%d %s", d/large, a)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, b)
	}
	return text
}
