package docs_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

// rules are the words of the ACL rules in security.md, by role.
func rules(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, block := range all("(?s)```\n(ACL SETUSER .*?)```", read(t, "security.md")) {
		// What is in brackets is one word.
		words := regexp.MustCompile(`\([^)]*\)|\S+`).FindAllString(block, -1)
		found[strings.TrimPrefix(words[2], "emq-")] = words[2:]
	}
	require.Len(t, found, 4)
	return found
}

// guarded is a server whose users are those of security.md.
type guarded struct {
	*testing.T
	server *valkeyd.Server
	admin  valkey.Client
	rules  map[string][]string
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	server, err := valkeyd.Start(valkeyd.Options{TCP: true})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	admin, err := valkey.NewClient(server.Options())
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	g := &guarded{t, server, admin, rules(t)}
	for _, words := range g.rules {
		g.set(words)
	}
	return g
}

func (g *guarded) set(words []string) {
	g.Helper()
	require.NoError(g, g.admin.Do(context.Background(), g.admin.B().Arbitrary("ACL", "SETUSER").Args(words...).Build()).Error(), words)
}

// as is a client of a role's user.
func (g *guarded) as(role string) valkey.Client {
	g.Helper()
	options := g.server.Options()
	options.Username, options.Password = "emq-"+role, "secret"
	client, err := valkey.NewClient(options)
	require.NoError(g, err)
	g.Cleanup(client.Close)
	return client
}

// refused: the server does not let the user do it.
func (g *guarded) refused(err error, what string) {
	g.Helper()
	require.Error(g, err, what)
	assert.Regexp(g, "NOPERM|permissions|no access|lacks commands|may not run", err.Error(), what)
}

func (g *guarded) raw(client valkey.Client, words ...string) error {
	return client.Do(context.Background(), client.B().Arbitrary(words...).Build()).Error()
}

// use does all that a role is for.
func (g *guarded) use(role string, client valkey.Client, name string) error {
	ctx, cancel := context.WithTimeout(g.Context(), 20*time.Second)
	defer cancel()
	q, err := queue.New(client, name, queue.Options{})
	if err != nil {
		return err
	}
	switch role {
	case "producer":
		jobs := []queue.Job{{ID: "a"}, {ID: "b", Delay: time.Millisecond}, {ID: "c", Keys: map[string]string{"tenant": "x"}, Cost: map[string]int64{"tokens": 1}}}
		for _, j := range jobs {
			if _, err := q.Enqueue(ctx, j); err != nil {
				return err
			}
		}
		_, err = q.EnqueueMany(ctx, make([]queue.Job, 20))
		return err
	case "worker":
		w, err := worker.New(client, name, func(_ context.Context, j *worker.Job) error {
			switch {
			case j.ID == "a" && j.Attempt == 1:
				return context.Canceled
			case j.ID == "b" && j.Deferrals == 0:
				return worker.Defer(time.Millisecond)
			case j.ID == "c" && j.Deferrals == 0:
				return worker.RateLimited(time.Millisecond, worker.Key("tenant"))
			}
			return nil
		}, worker.Options{Backoff: worker.Exponential(time.Millisecond, time.Millisecond), Claim: claim.Options{Lease: time.Second}})
		if err != nil {
			return err
		}
		var running sync.WaitGroup
		var ended error
		running.Go(func() { ended = w.Run(ctx) })
		owner, err := queue.New(g.admin, name, queue.Options{})
		if err != nil {
			return err
		}
		for ctx.Err() == nil && ended == nil {
			if n, err := owner.Counts(ctx); err == nil && n.Wait+n.Active+n.Delayed == 0 {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		w.Stop()
		running.Wait()
		if ended == nil {
			ended = ctx.Err()
		}
		return ended
	case "dashboard":
		if _, err := metrics.ReadCounts(ctx, client, name); err != nil {
			return err
		}
		if _, err := metrics.Budgets(ctx, client, name, 10); err != nil {
			return err
		}
		if _, err := metrics.Workers(ctx, client, name, 10); err != nil {
			return err
		}
		if _, err := queue.Names(ctx, client); err != nil {
			return err
		}
		for _, state := range []queue.State{queue.Wait, queue.Active, queue.Delayed, queue.Dead, queue.Completed} {
			page, err := q.List(ctx, state, 0, 10)
			if err != nil {
				return err
			}
			for _, j := range page {
				if _, err := metrics.Explain(ctx, client, name, j.ID); err != nil {
					return err
				}
			}
		}
		return nil
	}
	_, err = q.SetLimit(ctx, limiter.PerMinute(10), "")
	if err != nil {
		return err
	}
	if _, err = q.SetNamedLimit(ctx, queue.NamedLimit{Name: "rpm", Limit: limiter.PerMinute(10), By: "tenant"}, ""); err != nil {
		return err
	}
	if _, err = q.Pause(ctx, ""); err != nil {
		return err
	}
	if _, err = q.Resume(ctx, ""); err != nil {
		return err
	}
	if _, err = q.Close(ctx, time.Second, ""); err != nil {
		return err
	}
	if err = q.Reopen(ctx, ""); err != nil {
		return err
	}
	if _, err = q.Drain(ctx, true); err != nil {
		return err
	}
	_, err = q.RedriveDead(ctx, "")
	return err
}

// Each role can do what it is for, and not what others are for.
func TestRoles(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	owner, err := queue.New(g.admin, "mail", queue.Options{})
	require.NoError(t, err)
	_, err = owner.SetLimit(t.Context(), limiter.PerSecond(1000), "")
	require.NoError(t, err)
	_, err = owner.SetNamedLimit(t.Context(), queue.NamedLimit{Name: "tpm", Limit: limiter.PerSecond(1000), By: "tenant", Unit: "tokens"}, "")
	require.NoError(t, err)
	clients := map[string]valkey.Client{}
	for _, role := range []string{"producer", "dashboard", "worker", "operator"} {
		clients[role] = g.as(role)
		require.NoError(t, g.use(role, clients[role], "mail"), role)
	}
	ctx := t.Context()
	_, err = owner.Enqueue(ctx, queue.Job{ID: "secret", Payload: []byte("secret")})
	require.NoError(t, err)

	for role, client := range clients {
		q, err := queue.New(client, "mail", queue.Options{})
		require.NoError(t, err)
		other, err := queue.New(client, "other", queue.Options{})
		require.NoError(t, err)
		c, err := claim.New(client, "mail", claim.Options{})
		require.NoError(t, err)
		if role != "operator" {
			_, err = q.SetLimit(ctx, limiter.PerSecond(1), "")
			g.refused(err, role+" sets a limit")
			g.refused(g.raw(client, "HSET", "emq:{mail}:meta", "max", "1000000"), role+" sets max")
			_, err = q.Pause(ctx, "")
			g.refused(err, role+" pauses")
		}
		if role == "producer" || role == "dashboard" {
			_, err = c.Claim(ctx, 1)
			g.refused(err, role+" claims")
			g.refused(g.raw(client, "DEL", "emq:{mail}:limiter"), role+" resets the budget")
		}
		if role == "producer" {
			_, err = q.Get(ctx, "secret")
			g.refused(err, "a producer reads a job")
			g.refused(g.raw(client, "GET", "emq:{mail}:job:secret"), "a producer reads a payload")
			g.refused(g.raw(client, "EVAL", "return redis.call('GET', KEYS[1])", "1", "emq:{mail}:job:secret"), "a producer reads a payload by a script of his own")
		}
		if role == "dashboard" {
			g.refused(q.Delete(ctx, "secret"), "a dashboard deletes")
			_, err = q.Enqueue(ctx, queue.Job{})
			g.refused(err, "a dashboard enqueues")
		} else {
			_, err = other.Enqueue(ctx, queue.Job{})
			g.refused(err, role+" enqueues to another queue")
		}
		for _, command := range []string{"FLUSHALL", "CONFIG GET *", "KEYS *", "SCRIPT FLUSH", "DEBUG DIGEST", "SHUTDOWN NOSAVE", "ACL LIST", "SAVE"} {
			g.refused(g.raw(client, strings.Fields(command)...), role+": "+command)
		}
	}
	s, err := owner.Get(ctx, "secret")
	require.NoError(t, err)
	assert.Equal(t, queue.Wait, s.State)
	limit, err := owner.Limit(ctx)
	require.NoError(t, err)
	assert.Equal(t, int64(10), limit.Max, "as the operator set it")
}

// No command is granted for nothing: without any one of them the role cannot do its work.
func TestGrantsAreNeeded(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	// What clients and people use and these tests do not, or what the preflight alone asks for on another kind of key.
	free := []string{"+ping", "+hello", "+auth", "+info", "+acl|whoami", "+client|setinfo", "+client|setname", "+client|tracking", "+sadd", "+time", "+del", "+evalsha"}
	for _, role := range []string{"producer", "worker"} {
		words := g.rules[role]
		for _, word := range words {
			if !strings.HasPrefix(word, "+") || slices.Contains(free, word) {
				continue
			}
			without := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == word })
			for i, w := range without {
				if strings.HasPrefix(w, "(") {
					without[i] = strings.NewReplacer(" "+word+" ", " ", " "+word+")", ")").Replace(w)
				}
			}
			g.set(without)
			client := g.as(role)
			name := "mail"
			q, err := queue.New(client, name, queue.Options{})
			require.NoError(t, err)
			if role == "producer" {
				_, err = q.Enqueue(t.Context(), queue.Job{})
			} else {
				c, failed := claim.New(client, name, claim.Options{})
				require.NoError(t, failed)
				err = c.Check(t.Context())
			}
			assert.ErrorIs(t, err, queue.ErrNoAccess, "%s without %s", role, word)
			client.Close()
		}
		g.set(words)
	}
}
