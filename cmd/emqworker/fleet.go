package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

const (
	readyWithin = 15 * time.Second // for all processes of a fleet to connect
	stopWithin  = 5 * time.Second
)

// fleet is a number of worker processes of the demo on one queue.
type fleet struct {
	procs []*proc

	mu     sync.Mutex
	starts map[string]int // how often each job was started; owned by mu
	times  []int64        // of the starts, ms; owned by mu
}

type proc struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	said  bytes.Buffer // standard error; to be read when it has ended
	ready chan struct{}
	ended chan struct{}
}

// startFleet runs n processes of this program and returns when each is connected. The environment says which server.
func startFleet(n int, env []string, args ...string) (*fleet, error) {
	f := &fleet{starts: map[string]int{}}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for range n {
		p := &proc{cmd: exec.Command(self, append([]string{"demo-worker"}, args...)...), ready: make(chan struct{}), ended: make(chan struct{})}
		p.cmd.Env = env
		p.cmd.Stderr = &p.said
		ownGroup(p.cmd) // Ctrl-C in a terminal is for the demo alone
		if err := f.start(p); err != nil {
			f.stop()
			return nil, fmt.Errorf("starting a worker process: %w", err)
		}
		f.procs = append(f.procs, p)
	}
	timeout := time.After(readyWithin)
	for _, p := range f.procs {
		select {
		case <-p.ready:
			continue
		case <-p.ended:
			err = fmt.Errorf("a worker process ended at its start: %s", bytes.TrimSpace(p.said.Bytes()))
		case <-timeout:
			err = errors.New("the worker processes did not connect in time")
		}
		f.stop()
		return nil, err
	}
	return f, nil
}

func (f *fleet) start(p *proc) (err error) {
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	started := make(chan error)
	go func() {
		defer close(p.ended)
		defer holdThread()()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		f.read(p, stdout)
		p.cmd.Wait()
	}()
	return <-started
}

// read notes what a process says, until it ends.
func (f *fleet) read(p *proc, stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var line demoLine
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue
		}
		if line.Ready {
			close(p.ready)
			continue
		}
		f.mu.Lock()
		f.starts[line.ID]++
		f.times = append(f.times, line.AtMS)
		f.mu.Unlock()
	}
}

// stop ends all processes and returns when they are gone.
func (f *fleet) stop() {
	for _, p := range f.procs {
		p.stdin.Close()
	}
	kill := time.NewTimer(stopWithin)
	defer kill.Stop()
	for _, p := range f.procs {
		select {
		case <-p.ended:
		case <-kill.C:
			kill.Reset(0)
			p.cmd.Process.Kill()
			<-p.ended
		}
	}
}

// repeated counts the jobs that were started more than once.
func (f *fleet) repeated() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, times := range f.starts {
		if times > 1 {
			n++
		}
	}
	return n
}

// perWindow counts the starts in each of the first windows, the first of which begins with the first start. over is how many
// of those windows are over at now.
func (f *fleet) perWindow(windows int, window time.Duration, now time.Time) (counts []int, over int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts = make([]int, windows)
	if len(f.times) == 0 {
		return counts, 0
	}
	first := f.times[0]
	for _, at := range f.times {
		first = min(first, at)
	}
	for _, at := range f.times {
		if i := int((at - first) / window.Milliseconds()); i < windows {
			counts[i]++
		}
	}
	return counts, min(windows, int((now.UnixMilli()-first)/window.Milliseconds()))
}
