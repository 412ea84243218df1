package limiter

import (
	"context"
	"errors"
	"sync"

	"github.com/valkey-io/valkey-go"
)

var errClosed = errors.New("the limiter is closed")

// connection is the caller's client, or one that is dialled when it is first needed.
type connection struct {
	dial func() (valkey.Client, error) // nil: the caller's client

	mu      sync.Mutex
	client  valkey.Client
	dialing *attempt // nil: none is under way
	closed  bool
}

// attempt is one run of dial.
type attempt struct {
	done   chan struct{} // closed when client or err is set
	client valkey.Client
	err    error
}

// get returns the client, waiting for an attempt to dial it until ctx ends.
func (c *connection) get(ctx context.Context) (valkey.Client, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errClosed
	}
	if c.client != nil {
		defer c.mu.Unlock()
		return c.client, nil
	}
	if c.dialing == nil {
		c.dialing = &attempt{done: make(chan struct{})}
		go c.run(c.dialing)
	}
	a := c.dialing
	c.mu.Unlock()
	select {
	case <-a.done:
		return a.client, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *connection) run(a *attempt) {
	client, err := c.dial()
	if client == nil && err == nil {
		err = errors.New("dial returned no client")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dialing = nil
	switch {
	case err != nil:
		a.err = err
	case c.closed:
		client.Close()
		a.err = errClosed
	default:
		a.client, c.client = client, client
	}
	close(a.done)
}

func (c *connection) close() {
	if c.dial == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.client != nil {
		c.client.Close()
		c.client = nil
	}
}
