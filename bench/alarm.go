package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/worker"
)

// workerVariable is the environment variable by which this program runs as a worker process; it holds the server's URL.
const workerVariable = "EMQ_BENCH_WORKER"

// idLength is how much of a claimer's process id its claims and the queue's state carry.
const idLength = 8

// timerHolder is the id of the claimer whose timer is set for the next grant; "" where the queue does not say.
func timerHolder(ctx context.Context, client valkey.Client) string {
	id, err := client.Do(ctx, client.B().Hget().Key("emq:{"+name+"}:state").Field("holder").Build()).ToString()
	if valkey.IsValkeyNil(err) {
		return ""
	}
	check(err)
	return id[:min(len(id), idLength)]
}

// claimerOf is the id of the claimer that makes a call of the claim script: its first argument begins with it.
func claimerOf(call []string) string {
	keys, _ := strconv.Atoi(call[2])
	if nonce := 3 + keys; len(call) > nonce && len(call[nonce]) >= idLength {
		return call[nonce][:idLength]
	}
	return ""
}

// workerProcess is one process of a fleet: it works until its standard input ends, and tells its parent its id at its first claim, and
// each start of a handler with the server ms of its claim.
func workerProcess(url string) {
	client, err := valkey.NewClient(valkey.MustParseURL(url))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var first sync.Once
	told := tap{client, func(call []string) { first.Do(func() { fmt.Println("id", claimerOf(call)) }) }}
	w := startWorker(told, func(_ context.Context, job *worker.Job) error {
		at := time.Now()
		fmt.Println("start", at.UnixMicro(), job.ClaimedAt.UnixMilli())
		return nil
	}, worker.Options{Concurrency: 1})
	_, _ = io.Copy(io.Discard, os.Stdin)
	w.stop()
	client.Close()
}

// process is a worker process as its parent sees it.
type process struct {
	command *exec.Cmd
	input   io.Closer
	id      string
}

// grant is the start of a handler in a process.
type grant struct {
	by      *process
	at      time.Time
	claimed time.Time
}

// startProcess runs a worker process that tells its grants, and returns when it has claimed for the first time.
func startProcess(ctx context.Context, s *server, grants chan<- grant) *process {
	command := exec.Command(must(os.Executable()))
	command.Env = append(os.Environ(), workerVariable+"="+s.URL())
	command.Stderr = os.Stderr
	input := must(command.StdinPipe())
	output := must(command.StdoutPipe())
	check(command.Start())
	p := &process{command: command, input: input}
	known := make(chan struct{})
	go func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			words := strings.Fields(lines.Text())
			switch {
			case len(words) == 2 && words[0] == "id":
				p.id = words[1]
				close(known)
			case len(words) == 3 && words[0] == "start":
				at, _ := strconv.ParseInt(words[1], 10, 64)
				claimed, _ := strconv.ParseInt(words[2], 10, 64)
				grants <- grant{p, time.UnixMicro(at), time.UnixMilli(claimed)}
			}
		}
	}()
	wait(ctx, known, "the first claim of a process")
	return p
}

// kill ends the process, stopped or not.
func (p *process) kill() {
	_ = p.command.Process.Kill()
	_ = p.input.Close()
	_ = p.command.Wait()
}

func (p *process) signal(s syscall.Signal) { check(p.command.Process.Signal(s)) }

// alarmDeaths measures how late the next grant is when the process whose timer is set for it is killed, or stopped, in the middle of
// the window; kills and stops take turns.
func alarmDeaths(ctx context.Context, e *env, _ string) samples {
	const size = 5
	window := 2 * time.Second
	s := startServer()
	defer s.stop()
	q := openQueue(s)
	defer q.close()
	must(q.SetLimit(ctx, limiter.Limit{Max: 1, Window: window}, ""))
	q.fill(ctx, 100, nil)
	grants := make(chan grant, 100)
	var processes []*process
	defer func() {
		for _, p := range processes {
			p.kill()
		}
	}()
	for range size {
		processes = append(processes, startProcess(ctx, s, grants))
	}
	next := func() grant {
		select {
		case g := <-grants:
			return g
		case <-time.After(30 * time.Second):
			fail("no grant within 30 s after a process was killed or stopped")
		case <-ctx.Done():
			check(ctx.Err())
		}
		return grant{}
	}
	var late []float64
	last := next()
	for range e.size(4, 2) {
		for len(grants) > 0 {
			last = next()
		}
		pause(ctx, time.Until(last.at.Add(window/2)))
		victim := last.by
		holder := timerHolder(ctx, s.admin)
		for _, p := range processes {
			if p.id == holder {
				victim = p
			}
		}
		stopped := e.trial%2 == 1
		e.trial++
		if stopped {
			victim.signal(syscall.SIGSTOP)
		} else {
			victim.signal(syscall.SIGKILL)
		}
		reset := last.claimed.Add(window)
		last = next()
		if last.claimed.Before(reset) {
			fail("a job was granted %v before the window's end", reset.Sub(last.claimed))
		}
		late = append(late, ms(last.at.Sub(reset)))
		fmt.Fprintf(e.log, "stopped %v, holder %q, %.1f ms late\n", stopped, holder, late[len(late)-1])
		if stopped {
			victim.signal(syscall.SIGCONT)
			continue
		}
		for i, p := range processes {
			if p == victim {
				p.kill()
				processes[i] = startProcess(ctx, s, grants)
			}
		}
	}
	return samples{"late": late}
}
