package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/worker"
)

// Exit codes of a program: EX_USAGE and EX_DATAERR say that another attempt would not help, EX_TEMPFAIL that one would, perhaps at the
// time that the program wrote to its file descriptor 3.
var hopeless = []int{64, 65}

const tempFail = 75

// retryAfter is how that time is written, as EMQ_RETRY_AFTER=90 or EMQ_RETRY_AFTER=1m30s.
var retryAfter = regexp.MustCompile(`(?m)^EMQ_RETRY_AFTER=(\S+)\s*$`)

const (
	killAfter  = 5 * time.Second // from SIGTERM to SIGKILL
	hurryAfter = time.Second     // the same at shutdown: shorter than the worker waits for its handlers
	pipesAfter = time.Second     // how long the pipes of a program that ended are read on, when others hold them
	groupPoll  = 25 * time.Millisecond

	maxRetryAfter = 24 * time.Hour
	stderrKept    = claim.MaxErrorText - 128 // bytes; the rest is for how the program ended
)

// program runs one process for each job. Its argv never passes through a shell.
type program struct {
	argv           []string
	env            []string
	stdout, stderr io.Writer

	hurry     chan struct{} // closed: the worker is about to give its jobs back
	hurryOnce sync.Once

	mu      sync.Mutex
	running map[int]struct{} // process groups; owned by mu
}

// newProgram fails when there is no such program.
func newProgram(argv []string, stdout, stderr io.Writer) (*program, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, err
	}
	return &program{
		argv: append([]string{path}, argv[1:]...), env: inherited(os.Environ()), stdout: stdout, stderr: stderr,
		hurry: make(chan struct{}), running: map[int]struct{}{},
	}, nil
}

// inherited is the worker's environment without the server's address, and without what another worker said about its own job.
func inherited(env []string) []string {
	dropped := []string{"VALKEY_URL", "REDIS_URL", "EMQ_QUEUE", "EMQ_ATTEMPT", "EMQ_CLAIMED_MS", "EMQ_DEADLINE", "EMQ_TOKEN", "TRACEPARENT", "TRACESTATE"}
	return slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(dropped, name) || strings.HasPrefix(name, "EMQ_JOB_") ||
			strings.HasPrefix(name, "EMQ_KEY_") || strings.HasPrefix(name, "EMQ_COST_")
	})
}

// environment says what the job is.
func (p *program) environment(ctx context.Context, job *worker.Job) []string {
	env := slices.Clone(p.env)
	add := func(name, value string) { env = append(env, name+"="+value) }
	add("EMQ_JOB_ID", job.ID)
	add("EMQ_JOB_NAME", job.Name)
	add("EMQ_QUEUE", job.Queue)
	add("EMQ_ATTEMPT", strconv.Itoa(job.Attempt))
	add("EMQ_CLAIMED_MS", strconv.FormatInt(ms(job.ClaimedAt), 10))
	add("EMQ_TOKEN", job.Token())
	if deadline, ok := ctx.Deadline(); ok {
		add("EMQ_DEADLINE", strconv.FormatInt(ms(deadline), 10))
	}
	for name, value := range job.Keys {
		add("EMQ_KEY_"+name, value)
	}
	for unit, cost := range job.Cost {
		add("EMQ_COST_"+unit, strconv.FormatInt(cost, 10))
	}
	if parent, state := job.TraceContext(); parent != "" {
		add("TRACEPARENT", parent)
		if state != "" {
			add("TRACESTATE", state)
		}
	}
	return env
}

// handle runs the program for a job.
func (p *program) handle(ctx context.Context, job *worker.Job) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	defer holdThread()()

	said := tail{through: p.stderr}
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Env = p.environment(ctx, job)
	cmd.Stdin = bytes.NewReader(job.Payload)
	cmd.Stdout = p.stdout
	cmd.Stderr = &said
	cmd.WaitDelay = pipesAfter
	ownGroup(cmd)
	started, answer, err := attachAnswer(cmd)
	if err != nil {
		return fmt.Errorf("a pipe for the program: %w", err)
	}
	err = p.start(cmd)
	started()
	if err != nil {
		answer()
		return err
	}
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-ctx.Done():
			p.end(cmd.Process)
		case <-ended:
		}
	})
	cmd.Wait() // what it returns is in ProcessState
	close(ended)
	watching.Wait()
	p.forget(cmd.Process.Pid)
	return outcome(ctx, job.Timeout, cmd.ProcessState, said.text(), answer())
}

// outcome is what the end of the program means for its job.
func outcome(ctx context.Context, timeout time.Duration, state *os.ProcessState, stderr, answer string) error {
	if state.Success() {
		return nil
	}
	text := state.String()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		text = fmt.Sprintf("time-out of %v is over: %s", timeout, text)
	} else if ctx.Err() != nil {
		text = context.Cause(ctx).Error() + ": " + text
	}
	if stderr != "" {
		text += ": " + stderr
	}
	if slices.Contains(hopeless, state.ExitCode()) {
		return worker.DeadLetter(errors.New(text))
	}
	if wait, asked := askedWait(answer); asked && state.ExitCode() == tempFail {
		return worker.RetryIn(wait, errors.New(text))
	}
	return errors.New(text)
}

// askedWait is the time after EMQ_RETRY_AFTER= in what a program wrote to its file descriptor 3: seconds or a duration, at most a day.
func askedWait(answer string) (time.Duration, bool) {
	m := retryAfter.FindStringSubmatch(answer)
	if m == nil {
		return 0, false
	}
	wait, err := time.ParseDuration(m[1])
	if seconds, bad := strconv.ParseUint(m[1], 10, 31); bad == nil {
		wait, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil || wait < 0 {
		return 0, false
	}
	return min(wait, maxRetryAfter), true
}

// start starts cmd and notes its group.
func (p *program) start(cmd *exec.Cmd) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the program: %w", err)
	}
	p.running[cmd.Process.Pid] = struct{}{}
	return nil
}

func (p *program) forget(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, pid)
}

// end asks the process and all its group to stop, and kills what is left of them after a while.
func (p *program) end(leader *os.Process) {
	stopGroup(leader)
	kill := time.NewTimer(killAfter)
	defer kill.Stop()
	poll := time.NewTicker(groupPoll)
	defer poll.Stop()
	hurry := p.hurry
	for groupAlive(leader) {
		select {
		case <-poll.C:
		case <-hurry:
			hurry = nil
			kill.Reset(hurryAfter)
		case <-kill.C:
			killGroup(leader)
			return
		}
	}
}

// hurryUp gives programs that were asked to stop little time from now on.
func (p *program) hurryUp() { p.hurryOnce.Do(func() { close(p.hurry) }) }

// killAll ends all programs at once.
func (p *program) killAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pid := range p.running {
		if leader, err := os.FindProcess(pid); err == nil {
			killGroup(leader)
		}
	}
}

// holdThread keeps this goroutine on its thread: the system may end a program with the thread that started it, see ownGroup.
func holdThread() (release func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// tail keeps the end of what is written to it, and passes it on.
type tail struct {
	through io.Writer
	kept    []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.through.Write(b) // a worker without standard error goes on
	t.kept = append(t.kept, b...)
	if extra := len(t.kept) - 4*stderrKept; extra > 0 {
		t.kept = slices.Delete(t.kept, 0, extra)
	}
	return len(b), nil
}

// text is the end as valid UTF-8.
func (t *tail) text() string {
	s := strings.TrimSpace(strings.ToValidUTF8(string(t.kept), "\uFFFD"))
	if len(s) > stderrKept {
		s = strings.ToValidUTF8(s[len(s)-stderrKept:], "")
	}
	return s
}
