package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

const (
	within = time.Minute
	never  = 1 << 30 // jobs waiting
	tick   = 100 * time.Microsecond
)

// server answers calls one by one when the test says so.
type server struct {
	calls   chan []lua.NewJob
	answers chan error
}

func newServer() (*server, *gatherer) {
	s := &server{make(chan []lua.NewJob), make(chan error)}
	return s, &gatherer{enough: never, send: func(ctx context.Context, jobs []lua.NewJob) ([]lua.Enqueued, error) {
		s.calls <- jobs
		select {
		case err := <-s.answers:
			enqueued := make([]lua.Enqueued, len(jobs))
			for i, j := range jobs {
				enqueued[i].Duplicate = j.Body == "duplicate"
			}
			return enqueued, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
}

func waits(g *gatherer, n int) func() bool {
	return func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.waiting) == n
	}
}

func ids(jobs []lua.NewJob) (ids []string) {
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

// A single enqueue is sent at once; those that come meanwhile share the next call, and each gets its own answer.
func TestSinglesShareCalls(t *testing.T) {
	t.Parallel()
	s, g := newServer()
	var all sync.WaitGroup
	enqueue := func(id, body string, want error) {
		all.Go(func() {
			answer, err := g.enqueue(t.Context(), lua.NewJob{ID: id, Body: body})
			assert.Equal(t, body == "duplicate", answer.Duplicate)
			assert.ErrorIs(t, err, want)
		})
	}
	enqueue("first", "", nil)
	require.Equal(t, []string{"first"}, ids(<-s.calls))
	for i := range 3 {
		enqueue("b"+strconv.Itoa(i), []string{"", "duplicate"}[i%2], nil)
		require.Eventually(t, waits(g, i+1), within, tick)
	}
	s.answers <- nil
	require.Equal(t, []string{"b0", "b1", "b2"}, ids(<-s.calls))
	failure := errors.New("failure")
	for i := range batchJobs + 1 {
		enqueue("c"+strconv.Itoa(i), "", []error{failure, nil}[i/batchJobs])
		require.Eventually(t, waits(g, i+1), within, tick)
	}
	s.answers <- nil
	require.Len(t, <-s.calls, batchJobs)
	s.answers <- failure
	require.Len(t, <-s.calls, 1)
	s.answers <- nil
	all.Wait()

	large := string(make([]byte, batchBytes/2+1))
	enqueue("d0", large, nil)
	require.Len(t, <-s.calls, 1)
	for i := range 2 {
		enqueue("d"+strconv.Itoa(i), large, nil)
		require.Eventually(t, waits(g, i+1), within, tick)
	}
	for range 2 {
		s.answers <- nil
		require.Len(t, <-s.calls, 1, "both are more than a call holds")
	}
	s.answers <- nil
	all.Wait()
}

// Enough jobs are sent beside the call under way, and no more calls than two are.
func TestSecondCallBesideTheFirst(t *testing.T) {
	t.Parallel()
	s, g := newServer()
	g.enough = 2
	var all sync.WaitGroup
	enqueue := func(id string) {
		all.Go(func() {
			_, err := g.enqueue(t.Context(), lua.NewJob{ID: id})
			assert.NoError(t, err)
		})
	}
	enqueue("first")
	require.Len(t, <-s.calls, 1)
	enqueue("a")
	require.Eventually(t, waits(g, 1), within, tick)
	enqueue("b")
	require.Equal(t, []string{"a", "b"}, ids(<-s.calls), "the first has no answer yet")
	for i := range 4 {
		enqueue("c" + strconv.Itoa(i))
		require.Eventually(t, waits(g, i+1), within, tick)
	}
	s.answers <- nil
	require.Len(t, <-s.calls, 4, "one of the two was answered")
	s.answers <- nil
	s.answers <- nil
	all.Wait()
	require.Eventually(t, func() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.senders == 0 }, within, tick)
}

// Who gives up takes a job back that was not sent yet. A call goes on as long as one waits for it.
func TestSinglesThatGiveUp(t *testing.T) {
	t.Parallel()
	s, g := newServer()
	results := make(chan error)
	enqueue := func(id string) context.CancelFunc {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := g.enqueue(ctx, lua.NewJob{ID: id})
			results <- err
		}()
		return cancel
	}
	first := enqueue("first")
	<-s.calls
	cancels := make([]context.CancelFunc, 3)
	for i := range cancels {
		cancels[i] = enqueue(fmt.Sprint(i))
		require.Eventually(t, waits(g, i+1), within, tick)
	}
	cancels[1]()
	require.ErrorIs(t, <-results, context.Canceled)
	first()
	require.ErrorIs(t, <-results, context.Canceled)
	require.Equal(t, []string{"0", "2"}, ids(<-s.calls), "the first call ended when nobody waited for it")
	cancels[0]()
	require.ErrorIs(t, <-results, context.Canceled)
	s.answers <- nil
	require.NoError(t, <-results)
	cancels[2]()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := g.enqueue(ctx, lua.NewJob{})
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, waits(g, 0)())
}
