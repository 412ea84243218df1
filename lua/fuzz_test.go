package lua_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/lua"
)

// Whatever lies in a key of a queue, a script answers or fails with an error that says what is wrong; failed, it has changed nothing.
func FuzzGarbage(f *testing.F) {
	scripts := slices.Sorted(maps.Keys(scenes))
	for i := range scripts {
		f.Add(uint8(i), uint8(i), uint8(3*i), uint8(0), []byte("-1"))
		f.Add(uint8(i), uint8(0), uint8(5*i), uint8(1), []byte("9007199254740993 x"))
		f.Add(uint8(i), uint8(1), uint8(7*i), uint8(2), []byte("\x00\xff|~%d"))
	}
	shared := clocked(f)
	f.Fuzz(func(t *testing.T, script, scene, key, where uint8, garbage []byte) {
		q := shared.another(t)
		q.do("FLUSHALL")
		of := scenes[scripts[int(script)%len(scripts)]]
		names := slices.Sorted(maps.Keys(of))
		call := of[names[int(scene)%len(names)]](q)
		keys := slices.Sorted(maps.Keys(q.contents()))
		if len(keys) == 0 {
			return
		}
		name := keys[int(key)%len(keys)]
		switch text := string(garbage); q.text("TYPE " + name) {
		case "string":
			q.do("SET", name, text)
		case "list":
			q.do("LSET", name, "0", text)
		case "hash":
			fields := q.list("HKEYS " + name)
			slices.Sort(fields)
			if where%3 == 0 {
				fields = []string{text}
			}
			q.do("HSET", name, fields[int(where)%len(fields)], text)
		case "zset":
			q.do("ZADD", name, []string{"-1", "0", "1e300", "-inf", "+inf", "0.5"}[where%6], text)
		}
		err := q.unchanged(call, scripts[int(script)%len(scripts)], " with garbage in ", name)
		if err != nil {
			assert.NotContains(t, err.Error(), "attempt to ", "an error that no script raises on purpose, from ", name)
		}
	})
}

// answering is a client whose server answers each script with what the JSON text stands for.
type answering struct {
	valkey.Client
	text string
}

func (a *answering) Do(ctx context.Context, _ valkey.Completed) valkey.ValkeyResult {
	return a.Client.Do(ctx, a.B().Eval().Script("return cjson.decode(ARGV[1])").Numkeys(0).Arg(a.text).Build())
}

// answer is what bytes stand for: texts, numbers, lists, nothing.
func answer(b *[]byte, depth int) any {
	next := func() byte {
		if len(*b) == 0 {
			return 0
		}
		n := (*b)[0]
		*b = (*b)[1:]
		return n
	}
	switch kind := next(); kind % 8 {
	case 0, 1:
		return []string{"", "0", "-1", "x", "5 6", "9007199254740993", "1.5", "a|b", "chat:a 1 2", "dead", "wait", "fixed_window", strings.Repeat("f", 40)}[next()%13]
	case 2, 3:
		return int64(int8(next())) * int64(int8(next())) * 1_000_003
	case 4:
		return nil
	case 5:
		return next()%2 == 0
	}
	list := []any{}
	if depth < 4 {
		for range next() % 12 {
			list = append(list, answer(b, depth+1))
		}
	}
	return list
}

// Whatever a server answers, each call returns, with an answer or an error.
func FuzzReply(f *testing.F) {
	words := []string{"granted", "empty", "paused", "refused", "misconfigured", "corrupt", "settled", "extended", "enqueued", "set", "known", "budget", "budgets", "counts",
		"job", "list", "explain", "unknown", "taken", "run", "redriven", "removed", "drained", "mended", "look", "workers", "?"}
	for i := range words {
		f.Add(uint8(i), []byte{2, 3, 4, 0, 5, 6, 7, 3, 0, 1, 2, 9, 9, 6, 4, 6, 2, 0, 8, 2, 1, 1, 3, 9, 9})
		f.Add(uint8(i), []byte{6, 11, 0, 1, 0, 2, 2, 5, 5, 0, 4, 6, 9, 0, 1, 0, 3, 0, 5, 2, 1, 1, 0, 9, 6, 3, 0, 1, 2, 9, 9})
	}
	keys, err := lua.ForQueue("fuzz")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, word uint8, bytes []byte) {
		values := []any{words[int(word)%len(words)]}
		for len(bytes) > 0 && len(values) < 40 {
			values = append(values, answer(&bytes, 0))
		}
		text, err := json.Marshal(values)
		require.NoError(t, err)
		ctx, c := t.Context(), &answering{emqtest.Client(t), string(text)}
		one := []lua.Settlement{{Outcome: lua.Complete, ID: "a", Token: "1-x"}}
		bucket := fixedWindow("k", 1)
		_, _ = lua.Claim(ctx, c, keys, "p", "n", 3, lease, 3)
		_, _ = lua.Settle(ctx, c, keys, "p", 1, lease, one)
		_, _ = lua.Extend(ctx, c, keys, lease, one)
		_, _ = lua.Enqueue(ctx, c, keys, []lua.NewJob{job("a")})
		_, _, _ = lua.SetNamed(ctx, c, keys, lua.NamedChange{})
		_, _ = lua.SetLimit(ctx, c, keys, lua.LimitChange{})
		_, _, _ = lua.Close(ctx, c, keys, "close", "", "", "+1", "")
		_, _ = lua.ReadBudget(ctx, c, keys, "")
		_, _ = lua.ReadBudgets(ctx, c, keys, 3, nil)
		_, _ = lua.ReadCounts(ctx, c, keys)
		_, _, _ = lua.ReadJob(ctx, c, keys, "a")
		_, _ = lua.ReadPage(ctx, c, keys, "wait", 0, 9)
		_, _, _ = lua.Explain(ctx, c, keys, "a", lease)
		_, _ = lua.Take(ctx, c, "take", bucket, 1)
		_, _, _ = lua.TakeAll(ctx, c, "take", []lua.Bucket{bucket}, 1)
		_, _ = lua.Look(ctx, c, keys, "p", lua.Idle, true, 0)
		_, _, _, _ = lua.ReadWorkers(ctx, c, keys, 9)
		_, _ = lua.Pause(ctx, c, keys, true, "")
		_, _ = lua.RunNow(ctx, c, keys, []string{"a"})
		_, _ = lua.Redrive(ctx, c, keys, []string{"a"})
		_, _ = lua.Remove(ctx, c, keys, []string{"a"})
		_, _, _ = lua.Drain(ctx, c, keys, true, 1)
		_, _ = lua.Mend(ctx, c, keys, true, suspects("job", "a"))
	})
}
