package lua

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"
)

type claimArgs struct {
	Process  string `lua:"process"`
	Nonce    string `lua:"nonce"`
	K        int    `lua:"k"`
	Lease    int64  `lua:"lease"`
	Reclaims int    `lua:"reclaims"`
}

var claimScript = bind[claimArgs]("claim", "claimed", "limited", "empty", "paused", "misconfigured", "corrupt")

// Claimed is what one claim did.
type Claimed struct {
	Word      string        // claimed, limited, empty or paused
	Now       time.Time     // the server's clock
	Token     string        // of the leases it granted
	More      bool          // it stopped at its own bounds: ask again at once
	Next      time.Duration // when it is worth claiming again; -1 when nothing is known to come
	Again     bool          // the caller should claim again as soon as it can; else it waits for a wake-up or a timer
	Timers    Timers        // of a process that watches
	Retry     time.Duration // when the budget of all jobs that refused is back; 0 when none did
	Limited   bool          // the queue has limits
	Reclaimed int           // leases that had run out and went back to wait
	Died      int           // jobs that went to dead: lost too often, or without a record
	IDs       []string      // the jobs granted …
	Records   []string      // … and their records
	SentBack  []SentBack    // jobs that a limit refused
}

// Timers are what a process does by itself for the queue, see [Look].
type Timers struct {
	Claim time.Duration // it claims, or looks where it cannot, after that time; -1: another process does
	Look  time.Duration // it looks after that time; -1: when it was told before
}

// SentBack is a job that a bucket refused, and when it may be granted.
type SentBack struct {
	ID         string
	By         Blocker
	RetryAfter time.Duration
}

// Claim brings back what is due and hands out up to k jobs, at most 1,000, under leases. process names a caller that heeds the
// timers of the answer and watches over the queue for all; "" takes no such part. It is never sent again after a
// time-out or a broken connection: then its jobs come back when their leases end, and the budget they took stays spent.
func Claim(ctx context.Context, c valkey.Client, keys Keys, process, nonce string, k int, lease time.Duration, reclaims int) (Claimed, error) {
	r, err := claimScript.run(ctx, c, keys, claimArgs{process, nonce, k, lease.Milliseconds(), reclaims})
	if err != nil {
		return Claimed{}, err
	}
	const fixed = 13
	out := Claimed{
		Word: r.word, Now: time.UnixMilli(r.number(0)), Token: r.text(1), More: r.number(2) == 1, Next: r.until(3),
		Again: r.number(4) == 1, Timers: Timers{r.until(5), r.until(6)}, Retry: r.ms(7),
		Limited: r.number(8) == 1, Reclaimed: int(r.number(9)), Died: int(r.number(10)),
	}
	n := int(r.number(11))
	if n < 0 || n > (len(r.values)-fixed)/2 {
		return Claimed{}, fmt.Errorf("emq: claim: the answer counts %d jobs and holds %d values more", n, max(0, len(r.values)-fixed))
	}
	if n > 0 && !strings.HasSuffix(out.Token, "-"+nonce) {
		return Claimed{}, fmt.Errorf("emq: claim: the answer carries the token %q of another call; the connection is out of step", out.Token)
	}
	out.IDs, out.Records = make([]string, n), make([]string, n)
	for i := range n {
		if out.IDs[i], err = r.values[fixed+2*i].ToString(); err != nil {
			return Claimed{}, fmt.Errorf("emq: claim: job %d of its answer: %w", i, err)
		}
		if out.Records[i], err = r.values[fixed+2*i+1].ToString(); err != nil {
			return Claimed{}, fmt.Errorf("emq: claim: record of job %s: %w", out.IDs[i], err)
		}
	}
	for i := fixed + 2*n; i+2 < len(r.values); i += 3 {
		out.SentBack = append(out.SentBack, SentBack{r.text(i), ParseBlocker(r.text(i + 1)), r.ms(i + 2)})
	}
	return out, nil
}
