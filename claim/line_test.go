package claim_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
)

// onServer returns a queue on a server of its own with the real clock.
func onServer(t *testing.T) (*queue.Queue, *claim.Claimer, valkey.Client) {
	t.Helper()
	server, err := valkeyd.Start(valkeyd.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client, err := valkey.NewClient(server.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	q, err := queue.New(client, "q", queue.Options{})
	require.NoError(t, err)
	claimer, err := claim.New(client, "q", claim.Options{})
	require.NoError(t, err)
	return q, claimer, client
}

// enqueueFor enqueues n jobs of tenants.
func enqueueFor(t *testing.T, q *queue.Queue, n int, tenant func(i int) string) {
	t.Helper()
	jobs := make([]queue.Job, n)
	for i := range jobs {
		jobs[i].Keys = map[string]string{"tenant": tenant(i)}
	}
	_, err := q.EnqueueMany(t.Context(), jobs)
	require.NoError(t, err)
}

// 20,000 jobs of one tenant, who may run two a second, stand before 500 of others: these are not held up.
func TestLineHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	q, c, _ := onServer(t)
	ctx := t.Context()
	_, err := q.SetNamedLimit(ctx, queue.NamedLimit{Name: "tenant", By: "tenant", Limit: limiter.PerSecond(2)}, "")
	require.NoError(t, err)
	enqueueFor(t, q, 20_000, func(int) string { return "big" })
	enqueueFor(t, q, 500, func(i int) string { return "small" + strconv.Itoa(i) })
	begun := time.Now()
	others, claims := 0, 0
	for others < 500 {
		b, err := c.Claim(ctx, 50)
		require.NoError(t, err)
		claims++
		var done []claim.Outcome
		for _, j := range b.Jobs {
			if strings.HasPrefix(j.Keys["tenant"], "small") {
				others++
			}
			done = append(done, claim.Complete(j))
		}
		_, err = c.Settle(ctx, done)
		require.NoError(t, err)
		require.True(t, b.More || len(b.Jobs) == 50 || others == 500, "a claim that leaves work behind says so")
	}
	// 20,000 jobs join the line at 128 a claim: the number of claims is what counts, the time is the machine's.
	require.LessOrEqual(t, claims, 20_000/128+500/50+2)
	t.Logf("500 jobs of others were granted by %d claims in %v", claims, time.Since(begun))
}

// A line of 100,000 jobs costs no more commands than one of ten: only its head is judged, when its time has come.
func TestLongLineCostsWhatAShortOneDoes(t *testing.T) {
	t.Parallel()
	calls := map[int]int64{}
	for _, size := range []int{10, 100_000} {
		q, c, client := onServer(t)
		ctx := t.Context()
		_, err := q.SetNamedLimit(ctx, queue.NamedLimit{Name: "tenant", By: "tenant", Limit: limiter.Every(100 * time.Millisecond)}, "")
		require.NoError(t, err)
		for range max(1, size/20_000) {
			enqueueFor(t, q, min(size, 20_000), func(int) string { return "big" })
		}
		for more := true; more; { // the line forms
			b, err := c.Claim(ctx, 1)
			require.NoError(t, err)
			more = b.More || b.Next == 0
		}
		before := commands(t, client)
		granted, claims := 0, 0
		for granted < 8 {
			b, err := c.Claim(ctx, 1)
			require.NoError(t, err)
			claims++
			if len(b.Jobs) == 1 {
				granted++
				_, err = c.Settle(ctx, []claim.Outcome{claim.Complete(b.Jobs[0])})
				require.NoError(t, err)
			}
			require.Greater(t, b.Next, time.Duration(-1))
			time.Sleep(b.Next) // as a worker does
		}
		calls[size] = (commands(t, client) - before) / int64(claims)
	}
	t.Logf("commands of a claim: %v", calls)
	require.InDelta(t, calls[10], calls[100_000], float64(calls[10])/10)
}

// commands is how many commands the server has run, those of scripts included.
func commands(t *testing.T, client valkey.Client) (n int64) {
	t.Helper()
	info, err := client.Do(t.Context(), client.B().Info().Section("commandstats").Build()).ToString()
	require.NoError(t, err)
	for _, line := range strings.Split(info, "\r\n") {
		if _, rest, ok := strings.Cut(line, ":calls="); ok && !strings.HasPrefix(line, "cmdstat_info") {
			var calls int64
			_, err := fmt.Sscanf(rest, "%d", &calls)
			require.NoError(t, err)
			n += calls
		}
	}
	return n
}
