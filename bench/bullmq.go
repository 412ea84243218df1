package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// node runs BullMQ: each run is a process of node that is told what to do and prints what it measured.
type node struct{ program, dir string }

// installNode finds node and installs BullMQ, as the lock file says, into a folder that git ignores, unless it is there.
func installNode(ctx context.Context) (*node, error) {
	program, err := exec.LookPath("node")
	if err != nil {
		return nil, err
	}
	n := &node{program, "node"}
	lock, err := os.Stat(filepath.Join(n.dir, "package-lock.json"))
	if err != nil {
		return nil, err
	}
	installed, err := os.Stat(filepath.Join(n.dir, "node_modules", ".package-lock.json"))
	if err == nil && !installed.ModTime().Before(lock.ModTime()) {
		return n, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--silent")
	npm.Dir = n.dir
	if text, err := npm.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm ci: %w: %s", err, lastBytes(text))
	}
	return n, nil
}

// bullmqCall is what a process of node is asked to do.
type bullmqCall struct {
	Do          string `json:"do"` // a function of bench.mjs
	Port        int    `json:"port"`
	Jobs        int    `json:"jobs"`
	Concurrency int    `json:"concurrency,omitempty"`
	Limited     bool   `json:"limited,omitempty"` // a limit that is never reached
	Workers     int    `json:"workers,omitempty"`
	Seconds     int    `json:"seconds,omitempty"`
}

// call runs node on a server and returns the samples that it prints.
func (n *node) call(ctx context.Context, s *server, c bullmqCall) (got samples) {
	c.Port = s.port()
	asked := must(json.Marshal(c))
	command := exec.CommandContext(ctx, n.program, "bench.mjs", string(asked))
	command.Dir = n.dir
	var errs bytes.Buffer
	command.Stderr = &errs
	out, err := command.Output()
	if err != nil {
		fail("node: %w: %s", errors.Join(err, ctx.Err()), lastBytes(errs.Bytes()))
	}
	check(json.Unmarshal(out, &got))
	return got
}

// checkEmpty ends the run unless BullMQ left nothing of any job.
func (n *node) checkEmpty(ctx context.Context, s *server) {
	for _, state := range []string{"wait", "active", "prioritized", "delayed", "completed", "failed", "paused", "waiting-children"} {
		s.empty(ctx, "bull:"+name+":"+state)
	}
	s.empty(ctx, "bull:"+name+":[0-9]*")
}

// lastBytes is the end of what a program said.
func lastBytes(text []byte) []byte {
	return bytes.TrimSpace(text[max(0, len(text)-500):])
}
