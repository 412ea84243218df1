package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/echomq/emq/internal/ledger"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/queue"
)

// Bounds of a verification.
const (
	auditKept    = 200_000                // entries of each stream: more than come between two reads
	verifyPoll   = 100 * time.Millisecond // how often stream and ledger are read
	verifyBatch  = 20                     // jobs of one enqueue
	backlog      = 200                    // jobs that wait at most, so that every limit binds and the end comes soon
	drainWithin  = 2 * time.Minute        // at most, for jobs to end when nothing is done to them any more
	growthWithin = 10 * time.Second
)

// verification is one run of verify.
type verification struct {
	verifyFlags
	app    *app
	server *demoServer
	random *rand.Rand // of the run itself; not of goroutines
	dir    string
	ledger string
	events *ledger.Writer
	reader *ledger.Reader
	queues []*verified

	mu    sync.Mutex
	procs []*verifyProc // owned by mu
	ended sync.WaitGroup

	kills, stops, changes int
}

// verified is one queue of it.
type verified struct {
	*queue.Queue
	keys  lua.Keys
	check *ledger.Checker
	read  string // the last entry that was
	next  int    // job
}

type verifyProc struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	said  bytes.Buffer
	gone  chan struct{}
}

// mixes are the limits of the queues.
var mixes = []struct {
	own   limiter.Limit
	named []queue.NamedLimit
}{
	{limiter.Limit{Algorithm: limiter.FixedWindow, Max: 40, Window: 400 * time.Millisecond}, []queue.NamedLimit{
		{Name: "tenant", Limit: limiter.Limit{Algorithm: limiter.FixedWindow, Max: 6, Window: 250 * time.Millisecond}, By: "tenant"},
		{Name: "tokens", Limit: limiter.Limit{Algorithm: limiter.TokenBucket, Max: 2000, Window: time.Second, Burst: 500}, Unit: "tokens"},
		{Name: "flight", Limit: limiter.Limit{Algorithm: queue.Concurrency, Max: 12}},
	}},
	{limiter.Limit{Algorithm: limiter.TokenBucket, Max: 100, Window: time.Second, Burst: 20}, []queue.NamedLimit{
		{Name: "tenant", Limit: limiter.Limit{Algorithm: limiter.SlidingWindowCounter, Max: 10, Window: 300 * time.Millisecond}, By: "tenant"},
		{Name: "mine", Limit: limiter.Limit{Algorithm: queue.Concurrency, Max: 3}, By: "tenant"},
	}},
	{limiter.Limit{Algorithm: limiter.SlidingLog, Max: 50, Window: 500 * time.Millisecond}, []queue.NamedLimit{
		{Name: "pace", Limit: limiter.Limit{Algorithm: limiter.LeakyBucket, Max: 20, Window: time.Second}, By: "tenant"},
	}},
}

func newVerification(a *app, server *demoServer, f verifyFlags) (*verification, error) {
	dir, err := os.MkdirTemp("", "emq-verify-")
	if err != nil {
		return nil, err
	}
	v := &verification{verifyFlags: f, app: a, server: server, dir: dir, ledger: filepath.Join(dir, "ledger"), random: rand.New(rand.NewPCG(f.seed, 1))}
	if v.events, err = ledger.Append(v.ledger); err != nil {
		return nil, err
	}
	if v.reader, err = ledger.Open(v.ledger); err != nil {
		return nil, err
	}
	run := uuid.NewString()[:8]
	for i := range mixes {
		q, err := queue.New(server.client, fmt.Sprintf("verify-%s-%d", run, i+1), queue.Options{})
		if err != nil {
			return nil, err
		}
		keys, err := lua.ForQueue(q.Name())
		if err != nil {
			return nil, err
		}
		v.queues = append(v.queues, &verified{Queue: q, keys: keys, read: "0",
			check: ledger.New(q.Name(), verifyReclaims, func(job string) string { return sumOf(payloadOf(job)) })})
	}
	return v, nil
}

// close kills what still runs, and takes the queues away from a server that stays.
func (v *verification) close() {
	v.mu.Lock()
	procs := v.procs
	v.mu.Unlock()
	for _, p := range procs {
		p.cmd.Process.Signal(syscall.SIGCONT)
		p.cmd.Process.Kill()
	}
	v.ended.Wait()
	v.events.Close()
	v.reader.Close()
	os.RemoveAll(v.dir)
	if v.server.private {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, q := range v.queues {
		_ = v.eachKey(ctx, q, func(key string) error {
			return v.server.client.Do(ctx, v.server.client.B().Unlink().Key(key).Build()).Error()
		})
		_ = v.server.client.Do(ctx, v.server.client.B().Srem().Key(lua.Queues).Member(q.Name()).Build()).Error()
	}
}

func (v *verification) run(ctx context.Context) (verifyResult, error) {
	begin := time.Now()
	base := context.WithoutCancel(ctx) // a signal ends the trouble early; what it found is told
	if err := v.set(base); err != nil {
		return verifyResult{}, err
	}
	if err := v.enqueue(base); err != nil {
		return verifyResult{}, err
	}
	goroutines, descriptors := runtime.NumGoroutine(), openFiles() // with the connections that the client opens when it needs them
	for range v.workers {
		if err := v.spawn(); err != nil {
			return verifyResult{}, err
		}
	}
	if err := v.trouble(ctx); err != nil {
		return verifyResult{}, err
	}
	left, err := v.drain(base)
	if err != nil {
		return verifyResult{}, err
	}
	if err := v.stop(); err != nil {
		return verifyResult{}, err
	}
	if err := v.read(base); err != nil {
		return verifyResult{}, err
	}
	r := verifyResult{Server: v.server.name, Seed: v.seed, Queues: len(v.queues), Kills: v.kills, Stops: v.stops, Changes: v.changes, Left: left, Violations: []ledger.Violation{}}
	for _, q := range v.queues {
		if err := v.finish(base, q, &r); err != nil {
			return verifyResult{}, err
		}
	}
	r.Seconds = time.Since(begin).Seconds()
	v.grown(goroutines, descriptors, &r)
	return r, nil
}

// set gives the queues their limits, and makes them tell what is done to them from their first script on.
func (v *verification) set(ctx context.Context) error {
	c := v.server.client
	for i, q := range v.queues {
		err := c.Do(ctx, c.B().Hset().Key(q.keys.Meta()).FieldValue().FieldValue("audit", strconv.Itoa(auditKept)).Build()).Error()
		if err != nil {
			return err
		}
		if _, err := q.SetLimit(ctx, mixes[i].own, "verify"); err != nil {
			return err
		}
		for _, l := range mixes[i].named {
			if _, err := q.SetNamedLimit(ctx, l, "verify"); err != nil {
				return err
			}
		}
	}
	return nil
}

// spawn starts a worker process.
func (v *verification) spawn() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"verify-worker", "--ledger", v.ledger}
	for _, q := range v.queues {
		args = append(args, "-q", q.Name())
	}
	if v.scripts != "" {
		args = append(args, "--scripts", v.scripts)
	}
	if v.app.passwordFile != "" {
		args = append(args, "--password-file", v.app.passwordFile)
	}
	p := &verifyProc{cmd: exec.Command(self, args...), gone: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = v.server.env, &p.said
	ownGroup(p.cmd)
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	started := make(chan error)
	v.ended.Go(func() {
		defer close(p.gone)
		defer holdThread()()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = p.cmd.Wait()
		_ = v.events.Write(ledger.Event{Kind: ledger.Killed, Pid: p.cmd.Process.Pid})
	})
	if err := <-started; err != nil {
		return fmt.Errorf("verify: starting a worker process: %w", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.procs = append(v.procs, p)
	return nil
}

// trouble enqueues, kills, stops and changes until the time is over.
func (v *verification) trouble(ctx context.Context) error {
	base := context.WithoutCancel(ctx) // what was begun is ended
	end := time.NewTimer(v.runFor)
	defer end.Stop()
	poll := time.NewTicker(verifyPoll)
	defer poll.Stop()
	kill := time.NewTimer(v.pause())
	defer kill.Stop()
	change := time.NewTicker(time.Second)
	defer change.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-end.C:
			return nil
		case <-poll.C:
			if err = v.enqueue(base); err == nil {
				err = v.read(base)
			}
		case <-kill.C:
			err = v.hurt()
			kill.Reset(v.pause())
		case <-change.C:
			err = v.change(base)
		}
		if err != nil {
			return err
		}
		if v.enough() {
			return nil
		}
	}
}

// enough says that so much is broken that more would say nothing new.
func (v *verification) enough() bool {
	for _, q := range v.queues {
		if q.check.More > 0 {
			return true
		}
	}
	return false
}

// pause is until the next kill: half to one and a half of what is asked for.
func (v *verification) pause() time.Duration {
	if v.killEvery == 0 {
		return never
	}
	return v.killEvery/2 + time.Duration(v.random.Int64N(int64(v.killEvery)))
}

const never = 1 << 62

// hurt kills a process, or stops it for longer than a lease.
func (v *verification) hurt() error {
	v.mu.Lock()
	i := v.random.IntN(len(v.procs))
	p := v.procs[i]
	v.mu.Unlock()
	pid := p.cmd.Process.Pid
	if v.random.IntN(4) == 0 {
		v.stops++
		if err := v.events.Write(ledger.Event{Kind: ledger.Stopped, Pid: pid}); err != nil {
			return err
		}
		p.cmd.Process.Signal(syscall.SIGSTOP)
		still := time.Duration(float64(verifyLease) * (0.5 + 1.5*v.random.Float64()))
		v.ended.Go(func() {
			select {
			case <-time.After(still):
			case <-p.gone:
			}
			_ = v.events.Write(ledger.Event{Kind: ledger.Going, Pid: pid})
			p.cmd.Process.Signal(syscall.SIGCONT)
		})
		return nil
	}
	v.kills++
	p.cmd.Process.Kill()
	v.mu.Lock()
	v.procs = append(v.procs[:i], v.procs[i+1:]...)
	v.mu.Unlock()
	return v.spawn()
}

// change sets a limit of a queue anew, or closes it for a moment.
func (v *verification) change(ctx context.Context) error {
	i := v.random.IntN(len(v.queues))
	q := v.queues[i]
	v.changes++
	if v.random.IntN(4) == 0 {
		_, err := q.Close(ctx, 100*time.Millisecond, "verify")
		return err
	}
	factor := []int64{1, 2, 3}[v.random.IntN(3)]
	if v.random.IntN(2) == 0 {
		own := mixes[i].own
		own.Max = own.Max * factor / 2
		_, err := q.SetLimit(ctx, own, "verify")
		return err
	}
	named := mixes[i].named[v.random.IntN(len(mixes[i].named))]
	named.Max = max(1, named.Max*factor/2)
	_, err := q.SetNamedLimit(ctx, named, "verify")
	return err
}

// enqueue adds jobs where few wait.
func (v *verification) enqueue(ctx context.Context) error {
	for _, q := range v.queues {
		n, err := q.Counts(ctx)
		if err != nil {
			return err
		}
		if n.Wait+n.Delayed > backlog {
			continue
		}
		jobs := make([]queue.Job, verifyBatch)
		tries := make([]ledger.Event, verifyBatch)
		for i := range jobs {
			q.next++
			id := q.Name()[7:] + "-" + strconv.Itoa(q.next)
			jobs[i] = v.job(id)
			tries[i] = ledger.Event{Kind: ledger.Try, Queue: q.Name(), Job: id}
		}
		if err := v.events.Write(tries...); err != nil {
			return err
		}
		answers, err := q.EnqueueMany(ctx, jobs)
		if err != nil {
			return err
		}
		for i, answer := range answers {
			tries[i].Kind = ledger.Stored
			if answer.Err != nil {
				tries[i].Kind, tries[i].Note = ledger.Refused, answer.Err.Error()
			}
		}
		if err := v.events.Write(tries...); err != nil {
			return err
		}
	}
	return nil
}

// job is a job with keys, costs, a priority and a delay at random.
func (v *verification) job(id string) queue.Job {
	j := queue.Job{ID: id, Payload: payloadOf(id), Priority: queue.Priority(1 + v.random.IntN(4)), MaxAttempts: 5}
	if v.random.IntN(10) < 7 {
		j.Keys = map[string]string{"tenant": "t" + strconv.Itoa(v.random.IntN(6))}
	}
	if v.random.IntN(2) == 0 {
		j.Cost = map[string]int64{"tokens": 1 + v.random.Int64N(60)}
	}
	if v.random.IntN(10) == 0 {
		j.Delay = time.Duration(v.random.IntN(300)) * time.Millisecond
	}
	return j
}

// read feeds the checkers what came since the last time: the ledger is read first and told last.
func (v *verification) read(ctx context.Context) error {
	events, err := v.reader.Next()
	if err != nil {
		return err
	}
	for _, q := range v.queues {
		if err := v.readAudit(ctx, q); err != nil {
			return err
		}
	}
	byName := map[string]*verified{}
	for _, q := range v.queues {
		byName[q.Name()] = q
	}
	for _, e := range events {
		if q := byName[e.Queue]; q != nil {
			q.check.Event(e)
			continue
		}
		for _, q := range v.queues { // of a whole process
			q.check.Event(e)
		}
	}
	return nil
}

func (v *verification) readAudit(ctx context.Context, q *verified) error {
	c := v.server.client
	for {
		entries, err := c.Do(ctx, c.B().Xrange().Key(q.keys.Audit()).Start("("+q.read).End("+").Count(auditPage).Build()).AsXRange()
		if err != nil {
			return err
		}
		if q.read == "0" && len(entries) > 0 {
			first, err := c.Do(ctx, c.B().Xlen().Key(q.keys.Audit()).Build()).AsInt64()
			if err != nil {
				return err
			}
			if first >= auditKept {
				return errors.New("verify: the audit stream was trimmed before it was read")
			}
		}
		for _, e := range entries {
			q.check.Audit(e.FieldValues)
			q.read = e.ID
		}
		if len(entries) < auditPage {
			// What was read is not needed any more.
			return c.Do(ctx, c.B().Xtrim().Key(q.keys.Audit()).Minid().Threshold(q.read).Build()).Error()
		}
	}
}

// drain waits until no job is left; it returns how many are after the time for it.
func (v *verification) drain(ctx context.Context) (left int, err error) {
	until := time.Now().Add(min(drainWithin, 10*time.Second+4*v.runFor))
	for {
		left = 0
		for _, q := range v.queues {
			n, err := q.Counts(ctx)
			if err != nil {
				return 0, err
			}
			left += int(n.Wait + n.Active + n.Delayed)
		}
		if err := v.read(ctx); err != nil {
			return left, err
		}
		if left == 0 || time.Now().After(until) || v.enough() {
			return left, nil
		}
		time.Sleep(verifyPoll)
	}
}

// stop ends the processes.
func (v *verification) stop() error {
	v.mu.Lock()
	procs := v.procs
	v.procs = nil
	v.mu.Unlock()
	var errs []error
	for _, p := range procs {
		p.cmd.Process.Signal(syscall.SIGCONT)
		p.stdin.Close()
	}
	for _, p := range procs {
		select {
		case <-p.gone:
		case <-time.After(stopWithin):
			p.cmd.Process.Kill()
			<-p.gone
			errs = append(errs, fmt.Errorf("verify: worker process %d did not end: %s", p.cmd.Process.Pid, p.said.Bytes()))
		}
	}
	v.ended.Wait()
	return errors.Join(errs...)
}

// finish asks the server for what is left of a queue.
func (v *verification) finish(ctx context.Context, q *verified, r *verifyResult) error {
	var failed error
	q.check.Finish(func(job string) bool {
		_, err := q.Get(ctx, job)
		if err != nil && !errors.Is(err, queue.ErrNotFound) {
			failed = err
		}
		return err == nil
	})
	if failed != nil {
		return failed
	}
	c := v.server.client
	breach := func(format string, args ...any) {
		q.check.Violations = append(q.check.Violations, ledger.Violation{Invariant: "I10", Queue: q.Name(), Text: fmt.Sprintf(format, args...)})
	}
	inFlight := map[string]bool{q.keys.Prefix() + "limiter:flight": true}
	err := v.eachKey(ctx, q, func(key string) error {
		if !known(q.keys, key) {
			breach("key %s is none that a queue has", key)
		}
		if len(key) > len(q.keys.Limiter()) && key[:len(q.keys.Limiter())] == q.keys.Limiter() || key == q.keys.Limiter() {
			ttl, err := c.Do(ctx, c.B().Pttl().Key(key).Build()).AsInt64()
			if err != nil {
				return err
			}
			if ttl == -1 && !inFlight[key] && !bytes.HasPrefix([]byte(key), []byte(q.keys.Prefix()+"limiter:mine:")) {
				breach("key %s of a limit by rate stays for ever", key)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if n := q.check.More; n > 0 {
		r.More += n
	}
	r.Violations = append(r.Violations, q.check.Violations...)
	add(&r.Counts, q.check.Counts)
	return nil
}

func add(to *ledger.Counts, c ledger.Counts) {
	to.Enqueued += c.Enqueued
	to.Claims += c.Claims
	to.Admitted += c.Admitted
	to.SentBack += c.SentBack
	to.Windows += c.Windows
	to.Completed += c.Completed
	to.Dead += c.Dead
	to.Reclaimed += c.Reclaimed
	to.Starts += c.Starts
	to.Overlaps += c.Overlaps
	to.Over += c.Over
	to.Under += c.Under
	to.Lost += c.Lost
	to.RunTwice += c.RunTwice
	to.LateMS = max(to.LateMS, c.LateMS)
}

// eachKey calls do with every key of a queue.
func (v *verification) eachKey(ctx context.Context, q *verified, do func(key string) error) error {
	for _, c := range v.server.client.Nodes() {
		for cursor := uint64(0); ; {
			page, err := c.Do(ctx, c.B().Scan().Cursor(cursor).Match("emq:{"+q.Name()+"}:*").Count(1000).Build()).AsScanEntry()
			if err != nil {
				return err
			}
			for _, key := range page.Elements {
				if err := do(key); err != nil {
					return err
				}
			}
			if cursor = page.Cursor; cursor == 0 {
				break
			}
		}
	}
	return nil
}

// grown notes goroutines and descriptors that there are more of than at the start.
func (v *verification) grown(goroutines, descriptors int, r *verifyResult) {
	for until := time.Now().Add(growthWithin); ; time.Sleep(verifyPoll) {
		r.Goroutines, r.Descriptors = max(0, runtime.NumGoroutine()-goroutines), max(0, openFiles()-descriptors)
		if r.Goroutines+r.Descriptors == 0 {
			return
		}
		if time.Now().After(until) {
			r.Violations = append(r.Violations, ledger.Violation{Invariant: "I10",
				Text: fmt.Sprintf("%d goroutines and %d descriptors more than at the start", r.Goroutines, r.Descriptors)})
			return
		}
	}
}

// openFiles is how many descriptors this process has open; 0 where that cannot be seen.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}
