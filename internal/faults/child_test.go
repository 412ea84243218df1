package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/internal/faults/wire"
	"github.com/echomq/emq/worker"
)

// childEnv holds, for a process that is a worker of these tests, what it is to do.
const childEnv = "EMQ_FAULTS_CHILD"

// setup is what a child is to do.
type setup struct {
	URL, Queue  string
	Fail        string // a point of package wire
	Concurrency int
	Lease       time.Duration
	Grace       time.Duration
	Procs       int // GOMAXPROCS
}

// line is what a child prints.
type line struct {
	What    string // ready, start, end, done
	Job     string
	Attempt int
	Token   string
	Cause   string // why its context ended
	AtMS    int64
}

// childMain makes this process a worker, and does not return, if a test started it as one.
func childMain() {
	text := os.Getenv(childEnv)
	if text == "" {
		return
	}
	var s setup
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		log.Fatal(err)
	}
	if err := s.work(); err != nil {
		log.Fatal(err)
	}
	os.Exit(0)
}

var printing sync.Mutex

func say(l line) {
	l.AtMS = time.Now().UnixMilli()
	text, _ := json.Marshal(l)
	printing.Lock()
	defer printing.Unlock()
	_, _ = os.Stdout.Write(append(text, '\n'))
}

func (s setup) work() error {
	if s.Procs > 0 {
		runtime.GOMAXPROCS(s.Procs)
	}
	options, err := valkey.ParseURL(s.URL)
	if err != nil {
		return err
	}
	if s.Fail != "" {
		point, err := wire.Parse(s.Fail)
		if err != nil {
			return err
		}
		point.Wrap(&options)
	}
	client, err := valkey.NewClient(options)
	if err != nil {
		return err
	}
	defer client.Close()
	w, err := worker.New(client, s.Queue, s.handle, worker.Options{Concurrency: s.Concurrency, Grace: s.Grace, Claim: claim.Options{Lease: s.Lease}})
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		w.Stop()
		<-signals
		w.HandBack()
	}()
	say(line{What: "ready"})
	err = w.Run(context.Background())
	say(line{What: "done"})
	return err
}

// handle does what the job's payload says.
func (s setup) handle(ctx context.Context, job *worker.Job) (err error) {
	say(line{What: "start", Job: job.ID, Attempt: job.Attempt, Token: job.Token()})
	defer func() {
		l := line{What: "end", Job: job.ID, Attempt: job.Attempt, Token: job.Token()}
		if ctx.Err() != nil {
			l.Cause = context.Cause(ctx).Error()
		}
		say(l)
	}()
	what, argument, _ := strings.Cut(string(job.Payload), " ")
	d, _ := time.ParseDuration(argument)
	switch what {
	case "kill": // this process
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "exit":
		os.Exit(1)
	case "panic": // in a goroutine of its own
		go panic("in a goroutine")
		select {}
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-ctx.Done()
		return nil // as if it had not noticed
	case "burn":
		for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		}
	case "sleep":
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return ctx.Err()
		}
	case "first": // sleeps in its first run alone
		if job.Reclaims == 0 {
			select {
			case <-time.After(d):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	case "fail":
		return errors.New("as it was told")
	}
	return nil
}

// child is such a process.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan line
	err   strings.Builder
	gone  chan struct{}
}

func start(t *testing.T, s setup, env ...string) *child {
	t.Helper()
	if s.Lease == 0 {
		s.Lease = time.Second
	}
	if s.Grace == 0 {
		s.Grace = 500 * time.Millisecond
	}
	text, err := json.Marshal(s)
	require.NoError(t, err)
	c := &child{t: t, cmd: exec.Command(os.Args[0]), lines: make(chan line, 10_000), gone: make(chan struct{})}
	c.cmd.Env = append(append(os.Environ(), childEnv+"="+string(text)), env...)
	c.cmd.Stderr = &c.err
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	go func() {
		defer close(c.gone)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			var l line
			if json.Unmarshal(scan.Bytes(), &l) == nil {
				c.lines <- l
			}
		}
		_, _ = io.Copy(io.Discard, out)
		_ = c.cmd.Wait()
		close(c.lines)
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Signal(syscall.SIGCONT)
		_ = c.cmd.Process.Kill()
		<-c.gone
	})
	c.next("ready")
	return c
}

// next is the next line of that kind; others before it are dropped.
func (c *child) next(what string) line {
	c.t.Helper()
	for late := time.After(time.Minute); ; {
		select {
		case l, open := <-c.lines:
			if !open {
				c.t.Fatalf("the process ended without saying %q: %s", what, c.err.String())
			}
			if l.What == what {
				return l
			}
		case <-late:
			c.t.Fatalf("the process did not say %q within a minute", what)
		}
	}
}

// died waits for the end of the process and says how it ended.
func (c *child) died() string {
	c.t.Helper()
	select {
	case <-c.gone:
	case <-time.After(time.Minute):
		c.t.Fatal("the process did not end")
	}
	return fmt.Sprint(c.cmd.ProcessState)
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Process.Signal(s))
}

// stopped waits until the process has stopped.
func (c *child) stopped() {
	c.t.Helper()
	until(c.t, "the process is stopped", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		_, after, _ := strings.Cut(string(text), ") ")
		return err == nil && strings.HasPrefix(after, "T")
	})
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, time.Minute, 5*time.Millisecond, what)
}
