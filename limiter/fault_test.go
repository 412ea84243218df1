package limiter_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
)

// soon is well above the limiter's time-out and well below every time-out of the client.
const soon = limiter.DefaultTimeout + 3*time.Second

// requireChoices makes calls to a store that is down and requires the answer that was chosen, within the time-out.
func requireChoices(t *testing.T, newLimiter func(limiter.Options) *limiter.Limiter) {
	t.Helper()
	limit := limiter.PerSecond(5)
	for _, choice := range []limiter.OnError{limiter.ReturnError, limiter.FailOpen, limiter.FailClosed} {
		var observed []error
		l := newLimiter(limiter.Options{OnError: choice, Observe: func(key string, err error) {
			assert.Equal(t, "k", key)
			observed = append(observed, err)
		}})
		for i, c := range []struct {
			op           string
			n            int64
			open, closed limiter.Decision
		}{
			{"take", 2, limiter.Decision{Allowed: true, Granted: 2}, limiter.Decision{RetryAfter: time.Second}},
			{"upto", 9, limiter.Decision{Allowed: true, Granted: 9}, limiter.Decision{RetryAfter: time.Second}},
			{"peek", 2, limiter.Decision{Allowed: true}, limiter.Decision{RetryAfter: time.Second}},
			{"take", 6, limiter.Decision{RetryAfter: limiter.Never}, limiter.Decision{RetryAfter: limiter.Never}},
			{"refund", 1, limiter.Decision{}, limiter.Decision{}},
			{"reset", 0, limiter.Decision{}, limiter.Decision{}},
		} {
			start := time.Now()
			d, err := call(t, l, "k", limit, c.op, c.n)
			require.Less(t, time.Since(start), soon)
			require.Len(t, observed, i+1)
			require.ErrorIs(t, observed[i], limiter.ErrUnavailable)
			switch {
			case choice == limiter.ReturnError || c.op == "refund" || c.op == "reset":
				require.ErrorIs(t, err, limiter.ErrUnavailable, c.op)
				require.Equal(t, observed[i], err)
				require.Zero(t, d)
				continue
			case choice == limiter.FailOpen:
				c.open.Source, c.open.Limit = limiter.FailedOpen, 5
				require.Equal(t, c.open, d, c.op)
			default:
				c.closed.Source, c.closed.Limit = limiter.FailedClosed, 5
				require.Equal(t, c.closed, d, c.op)
			}
			require.NoError(t, err, c.op)
		}
		d, err := l.Take(t.Context(), "k", limiter.Limit{}, 7)
		require.NoError(t, err, "what is not limited needs no store")
		require.Equal(t, limiter.Decision{Allowed: true, Granted: 7, Remaining: -1, Source: limiter.Store}, d)
	}
}

func TestDeadPort(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	requireChoices(t, func(opts limiter.Options) *limiter.Limiter {
		l, err := limiter.NewLazy(func() (valkey.Client, error) {
			return valkey.NewClient(valkey.ClientOption{InitAddress: []string{address}})
		}, opts)
		require.NoError(t, err)
		t.Cleanup(l.Close)
		return l
	})
}

func TestServerThatAcceptsAndSaysNothing(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	requireChoices(t, func(opts limiter.Options) *limiter.Limiter {
		l, err := limiter.NewLazy(func() (valkey.Client, error) {
			return valkey.NewClient(valkey.ClientOption{InitAddress: []string{listener.Addr().String()},
				Dialer: net.Dialer{Timeout: 2 * soon}})
		}, opts)
		require.NoError(t, err)
		t.Cleanup(l.Close)
		return l
	})
}

func TestServerThatEnded(t *testing.T) {
	t.Parallel()
	server, err := valkeyd.Start(valkeyd.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client := dial(t, server)
	server.Kill()
	requireChoices(t, func(opts limiter.Options) *limiter.Limiter {
		l, err := limiter.New(client, opts)
		require.NoError(t, err)
		return l
	})
}

func TestStoppedServerIsAskedOnce(t *testing.T) {
	t.Parallel()
	server, err := valkeyd.Start(valkeyd.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client := dial(t, server)
	l, limit := newLimiter(t, client), limiter.PerHour(100)
	_, err = l.Take(t.Context(), "warm", limit, 1) // the script is loaded
	require.NoError(t, err)

	require.NoError(t, server.Pause())
	short, err := limiter.New(client, limiter.Options{})
	require.NoError(t, err)
	start := time.Now()
	_, err = short.Take(t.Context(), "once", limit, 1)
	require.ErrorIs(t, err, limiter.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(start), soon)
	requireChoices(t, func(opts limiter.Options) *limiter.Limiter {
		l, err := limiter.New(client, opts)
		require.NoError(t, err)
		return l
	})

	require.NoError(t, server.Resume())
	fresh := newLimiter(t, dial(t, server))
	// What was sent before the time-out is done when the server goes on: once, or not at all if it was not yet on its way.
	for range 50 {
		d, err := fresh.Peek(t.Context(), "once", limit, 0)
		require.NoError(t, err)
		require.LessOrEqual(t, d.Limit-d.Remaining, int64(1))
	}
}

// A call must not wait for another caller's attempt to connect, which the client makes all of them share.
func TestTimeoutHoldsWhileAnotherCallConnects(t *testing.T) {
	t.Parallel()
	server, err := valkeyd.Start(valkeyd.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	options := server.Options()
	var slow atomic.Bool
	dialling, release := make(chan struct{}, 1), make(chan struct{})
	options.DialCtxFn = func(ctx context.Context, path string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		if slow.Load() {
			dialling <- struct{}{}
			<-release
			return nil, errors.New("no connection")
		}
		return d.DialContext(ctx, "unix", path)
	}
	client, err := valkey.NewClient(options)
	require.NoError(t, err)
	defer client.Close()
	slow.Store(true)
	server.Kill()
	require.Eventually(t, func() bool { // until the client has noticed
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		go client.Do(context.Background(), client.B().Set().Key("k").Value("v").Build())
		select {
		case <-dialling:
			return true
		case <-ctx.Done():
			return false
		}
	}, time.Minute, time.Millisecond)
	defer close(release)
	requireChoices(t, func(opts limiter.Options) *limiter.Limiter {
		l, err := limiter.New(client, opts)
		require.NoError(t, err)
		return l
	})
}

func TestLazyConnects(t *testing.T) {
	t.Parallel()
	var dials atomic.Int64
	release := make(chan struct{})
	l, err := limiter.NewLazy(func() (valkey.Client, error) {
		switch dials.Add(1) {
		case 1:
			return nil, errors.New("not yet")
		case 2:
			return nil, nil
		}
		<-release
		return valkey.NewClient(valkey.MustParseURL(emqtest.URL(t)))
	}, limiter.Options{})
	require.NoError(t, err)
	key, limit := emqtest.Queue(t), limiter.PerHour(5)
	require.Zero(t, dials.Load(), "nothing is sent by the constructor")

	_, err = l.Take(t.Context(), key, limit, 1)
	require.ErrorContains(t, err, "not yet")
	_, err = l.Take(t.Context(), key, limit, 1)
	require.ErrorContains(t, err, "dial returned no client")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, err := l.Take(t.Context(), key, limit, 1)
			assert.ErrorIs(t, err, limiter.ErrUnavailable)
		})
	}
	wg.Wait()
	require.EqualValues(t, 3, dials.Load(), "one dial at a time")

	close(release)
	require.Eventually(t, func() bool {
		d, err := l.Take(t.Context(), key, limit, 1)
		return err == nil && d.Allowed
	}, time.Minute, time.Millisecond)
	require.EqualValues(t, 3, dials.Load(), "the client of the slow dial is used")
	l.Close()
	l.Close()
	_, err = l.Take(t.Context(), key, limit, 1)
	require.ErrorIs(t, err, limiter.ErrUnavailable)
	require.ErrorContains(t, err, "closed")
}

func TestCloseWhileDialling(t *testing.T) {
	t.Parallel()
	url := emqtest.URL(t)
	release := make(chan struct{})
	l, err := limiter.NewLazy(func() (valkey.Client, error) {
		<-release
		return valkey.NewClient(valkey.MustParseURL(url))
	}, limiter.Options{Timeout: 5 * time.Millisecond})
	require.NoError(t, err)
	_, err = l.Take(t.Context(), "k", limiter.PerSecond(1), 1)
	require.ErrorIs(t, err, limiter.ErrUnavailable)
	l.Close()
	close(release) // the client that comes now is closed: the run ends with no goroutine left
}

func TestCallersContextEndsFirst(t *testing.T) {
	t.Parallel()
	l, err := limiter.NewLazy(func() (valkey.Client, error) {
		return nil, errors.New("down")
	}, limiter.Options{OnError: limiter.FailOpen, Observe: func(string, error) { t.Error("the store is not to blame") }})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.Take(ctx, "k", limiter.PerSecond(1), 1)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, limiter.ErrUnavailable)
	ctx, cancel = context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	_, err = l.Take(ctx, "k", limiter.PerSecond(1), 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, limiter.ErrUnavailable)
}
