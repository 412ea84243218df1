// Package wire makes a process fail at a chosen moment of its talk with the server: just before a script call leaves, or when its reply
// has come and nobody in the process has seen it yet. So the code under test needs no failpoints of its own.
package wire

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/lua"
)

// Moments and acts of a [Point].
const (
	Send  = "send"  // the call is about to be written
	Reply = "reply" // the server ran it and its reply was read from the socket

	Kill = "kill" // SIGKILL of this process
	Stop = "stop" // SIGSTOP of this process
	Cut  = "cut"  // the connection breaks
)

// Point is where to fail: at the n-th call of a script, from 1.
type Point struct {
	Script, Moment string
	N              int
	Act            string
}

// Parse reads a point such as settle:send:1:kill.
func Parse(s string) (Point, error) {
	w := strings.Split(s, ":")
	if len(w) != 4 {
		return Point{}, fmt.Errorf("wire: %q is no point; want script:moment:n:act", s)
	}
	n, err := strconv.Atoi(w[2])
	p := Point{w[0], w[1], n, w[3]}
	if err != nil || n < 1 || lua.Source(p.Script) == "" || p.Moment != Send && p.Moment != Reply || p.Act != Kill && p.Act != Stop && p.Act != Cut {
		return Point{}, fmt.Errorf("wire: %q is no point; want script:(send|reply):n:(kill|stop|cut)", s)
	}
	return p, nil
}

// Wrap makes the connections of a client fail at a point. The server must know the script already, so that it is called by its digest.
func (p Point) Wrap(options *valkey.ClientOption) {
	sum := sha1.Sum([]byte(lua.Source(p.Script)))
	w := &watch{point: p, digest: []byte(hex.EncodeToString(sum[:]))}
	options.DialCtxFn = func(ctx context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
		network := "tcp"
		if strings.HasPrefix(address, "/") {
			network = "unix"
		}
		inner, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: inner, watch: w}, nil
	}
}

// watch counts the calls of all connections.
type watch struct {
	point  Point
	digest []byte

	mu    sync.Mutex
	calls int // owned by mu
}

// due says whether b holds the call at which to fail.
func (w *watch) due(b []byte) bool {
	n := bytes.Count(b, w.digest)
	if n == 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.calls
	w.calls += n
	return before < w.point.N && w.calls >= w.point.N
}

// act fails; it returns whether the connection is to break.
func (w *watch) act() (cut bool) {
	switch w.point.Act {
	case Kill:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case Stop:
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(100 * time.Millisecond) // another thread may take the signal: this one goes no further before it has
	case Cut:
		return true
	}
	return false
}

type conn struct {
	net.Conn
	watch *watch

	mu    sync.Mutex
	armed bool // the next reply is the one; owned by mu
}

func (c *conn) Write(b []byte) (int, error) {
	if c.watch.due(b) {
		if c.watch.point.Moment == Send {
			if c.watch.act() {
				c.Close()
				return 0, net.ErrClosed
			}
		} else {
			c.mu.Lock()
			c.armed = true
			c.mu.Unlock()
		}
	}
	return c.Conn.Write(b)
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	armed := c.armed && n > 0
	c.armed = c.armed && !armed
	c.mu.Unlock()
	if armed && c.watch.act() {
		c.Close()
		return 0, net.ErrClosed
	}
	return n, err
}
