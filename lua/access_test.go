package lua_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/lua"
)

// as connects as a user with these rules beside all commands and all keys.
func as(t *testing.T, q *queue, rules ...string) (client valkey.Client, user string) {
	t.Helper()
	user = "user-" + q.keys.Queue()
	q.do(append([]string{"ACL", "SETUSER", user, "reset", "on", ">secret", "+@all", "~*", "&*"}, rules...)...)
	t.Cleanup(func() {
		_ = q.client.Do(context.Background(), q.client.B().Arbitrary("ACL", "DELUSER", user).Build()).Error()
	})
	options, err := valkey.ParseURL(emqtest.URL(t))
	require.NoError(t, err)
	options.Username, options.Password = user, "secret"
	client, err = valkey.NewClient(options)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client, user
}

// F32: a user who may not run one of the commands inside a script is told which before the script runs and ends half done.
func TestF32EachCommandThatAUserLacksIsNamed(t *testing.T) {
	t.Parallel()
	scripts := []string{"enqueue", "claim", "settle", "extend", "look"}
	commands := append(lua.Commands(scripts...), "BLPOP")
	require.Subset(t, commands, []string{"TIME", "ZADD", "MSET", "RPUSH", "UNLINK", "SETRANGE", "ZUNIONSTORE", "XADD", "INCRBY"})
	q := newQueue(t)
	before := q.contents()
	client, user := as(t, q)
	require.NoError(t, lua.CheckAccess(t.Context(), client, q.keys, scripts, "BLPOP"))
	for _, command := range commands {
		q.do("ACL", "SETUSER", user, "+@all", "-"+command)
		err := lua.CheckAccess(t.Context(), client, q.keys, scripts, "BLPOP")
		require.ErrorIs(t, err, lua.ErrNoAccess, command)
		assert.ErrorContains(t, err, fmt.Sprintf("user %s may not run %s on the keys of queue %s; grant them: +%s ~%s*",
			user, command, q.keys.Queue(), strings.ToLower(command), q.keys.Prefix()))
	}
	q.do("ACL", "SETUSER", user, "+@all", "resetkeys", "~"+q.keys.Prefix()+"*")
	require.NoError(t, lua.CheckAccess(t.Context(), client, q.keys, scripts, "BLPOP"), "more keys are not needed")
	q.do("ACL", "SETUSER", user, "resetkeys", "~"+q.keys.Prefix()+"job:*", "%R~"+q.keys.Prefix()+"*")
	require.NoError(t, lua.CheckAccess(t.Context(), client, q.keys, []string{"list"}))
	q.do("ACL", "SETUSER", user, "resetkeys", "~other:*")
	err := lua.CheckAccess(t.Context(), client, q.keys, scripts)
	require.ErrorIs(t, err, lua.ErrNoAccess)
	require.ErrorContains(t, err, "; grant the keys of queue "+q.keys.Queue()+": ~"+q.keys.Prefix()+"*")
	require.Equal(t, before, q.contents(), "nothing was run")
}

// F63: a settle that cannot reach one of its records, as in a slot that moves, changes nothing: the job is not taken for one without a
// record.
func TestF63SettleThatCannotReachARecord(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.wait("a", "b")
	c := q.claim(2)
	require.Len(t, c.IDs, 2)
	client, _ := as(t, q, "resetkeys", "~"+q.keys.Prefix()+"[^j]*", "~"+q.keys.Job("a"))
	before := q.contents()
	for _, outcome := range []string{lua.Complete, lua.Retry, lua.Defer, lua.HandBack, lua.DeadLetter} {
		for wait := range time.Duration(2) {
			_, err := lua.Settle(t.Context(), client, q.keys, "p", 1, lease, []lua.Settlement{
				{Outcome: outcome, ID: "a", Token: c.Token, Wait: wait * time.Second},
				{Outcome: outcome, ID: "b", Token: c.Token, Wait: wait * time.Second},
			})
			require.Error(t, err, "%s %d", outcome, wait)
			require.Equal(t, before, q.contents(), "%s %d", outcome, wait)
		}
	}
}

// A record that a script cannot reach is not a record that is gone: its job does not go to dead.
func TestF63RecordsThatCannotBeReached(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.wait("a", "b")
	q.wait("c", "d")
	require.Len(t, q.claim(1).IDs, 1)
	q.do("ZADD", ":delayed", fmt.Sprint(start-1), "d")    // due
	q.do("ZADD", ":active", fmt.Sprint(start-1), "c|0-x") // its lease has ended
	client, _ := as(t, q, "resetkeys", "~"+q.keys.Prefix()+"[^j]*")
	before := q.contents()
	for name, call := range map[string]func() error{
		"claim": func() error {
			_, err := lua.Claim(t.Context(), client, q.keys, "", "nonce", 2, lease, 3)
			return err
		},
		"run":     func() error { _, err := lua.RunNow(t.Context(), client, q.keys, []string{"d"}); return err },
		"redrive": func() error { _, err := lua.Redrive(t.Context(), client, q.keys, []string{"d"}); return err },
		"remove":  func() error { _, err := lua.Remove(t.Context(), client, q.keys, []string{"a"}); return err },
		"mend": func() error {
			_, err := lua.Mend(t.Context(), client, q.keys, true, suspects("job", "d"))
			return err
		},
		"job":     func() error { _, _, err := lua.ReadJob(t.Context(), client, q.keys, "a"); return err },
		"list":    func() error { _, err := lua.ReadPage(t.Context(), client, q.keys, "wait", 0, 9); return err },
		"explain": func() error { _, _, err := lua.Explain(t.Context(), client, q.keys, "a", lease); return err },
	} {
		err := call()
		assert.Error(t, err, name)
		assert.Equal(t, before, q.contents(), name)
	}
}
