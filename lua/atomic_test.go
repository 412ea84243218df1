package lua_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/lua"
)

// writers are plain commands that make a key of each type.
var writers = map[string][]string{
	"string": {"SET", "x"},
	"list":   {"RPUSH", "x"},
	"hash":   {"HSET", "f", "x"},
	"set":    {"SADD", "x"},
	"zset":   {"ZADD", "1", "x"},
	"stream": {"XADD", "1-1", "f", "x"},
}

// A scene fills a queue, whose clock stands still, and returns a call that changes there as much as its script can.
type scene func(q *queue) (call func() error)

// crowded fills a queue so that each phase of a claim has something to do.
func crowded(q *queue) {
	q.wait("lost.active", "ended", "poison", "active", "back", "sent", "due.sent", "sent.lost")
	leases := q.claim(8)
	require.Len(q, leases.IDs, 8)
	jobs := []lua.NewJob{job("lost"), delayed("lost.due", time.Second), delayed("later", time.Hour)}
	for priority := 1; priority <= 4; priority++ {
		p := fmt.Sprint(priority)
		jobs = append(jobs, lua.NewJob{ID: "wait" + p, Priority: priority, Body: "."},
			lua.NewJob{ID: "due" + p, Priority: priority, When: "+1000", Body: "."})
	}
	q.enqueue(jobs...)

	now, soon := fmt.Sprint(start), fmt.Sprint(start+500)
	for _, id := range []string{"lost.active", "ended", "poison"} {
		q.do("ZADD", ":active", now, id+"|"+leases.Token)
	}
	for _, id := range []string{"due1", "due2", "due3", "due4", "lost.due"} {
		q.do("ZADD", ":delayed", now, id)
	}
	for id, due := range map[string]string{"sent": soon, "due.sent": now, "sent.lost": soon, "back": ""} {
		_, record := q.found(id)
		place := fmt.Sprint(record.Place())
		q.do("ZREM", ":active", id+"|"+leases.Token)
		if id == "back" {
			q.do("ZADD", ":back", place, id)
		} else {
			q.do("ZADD", ":sent", place, id)
			q.do("ZADD", ":delayed", due, id)
		}
	}
	q.do("SETRANGE", ":job:poison", "31", "2")
	q.do("DEL", ":job:lost", ":job:lost.due", ":job:lost.active", ":job:sent.lost")
	q.do("HSET", ":meta", "audit", "1000")
	q.do("DEL", ":wake")
}

// everywhere fills a queue with jobs in each state.
func everywhere(q *queue) {
	for _, id := range []string{"kept1", "dead1", "dead4"} {
		q.enqueue(lua.NewJob{ID: id, Priority: int(id[4] - '0'), Body: "."})
	}
	q.settle(q.claimed(lua.Complete, time.Minute, "result"))
	q.settle(q.claimed(lua.DeadLetter, 0, "dead_lettered\nno"))
	q.settle(q.claimed(lua.DeadLetter, 0, "dead_lettered\nno"))
	crowded(q)
}

// settled leaves jobs under leases and returns a settlement of each kind for them.
func settled(q *queue) []lua.Settlement {
	ids := []string{"plain", "failed", "kept", "retry", "defer", "back", "dead", "lost", "gone"}
	q.wait(ids...)
	leases := q.claim(len(ids))
	jobs := make([]lua.Settlement, len(ids))
	for i, id := range ids {
		jobs[i] = lua.Settlement{Outcome: lua.Complete, ID: id, Token: leases.Token, Text: "text"}
		switch id {
		case "kept":
			jobs[i].Wait = time.Minute
		case "retry", "defer":
			jobs[i].Outcome, jobs[i].Wait = id, time.Minute
		case "lost":
			jobs[i].Outcome = lua.Retry
		case "back", "dead":
			jobs[i].Outcome = id
		}
	}
	q.do("DEL", ":job:lost", ":wake")
	q.do("ZREM", ":active", "gone|"+leases.Token)
	q.do("HSET", ":errors", "failed", "retry\nfirst")
	q.do("ZADD", ":completed", "1", "old")
	q.do("HSET", ":meta", "audit", "1000")
	return jobs
}

// claiming claims k jobs of a crowded queue that change made different.
func claiming(k int, change func(q *queue)) scene {
	return func(q *queue) func() error {
		crowded(q)
		change(q)
		return func() error { return second(q.tryClaim(k)) }
	}
}

// limit is a limit and a counter without TTL; "" for none.
func limit(max, counter string) func(q *queue) {
	return func(q *queue) {
		q.do("HSET", ":meta", "max", max, "duration", "1000")
		if counter != "" {
			q.do("SET", ":limiter", counter)
		}
	}
}

// enqueuing enqueues jobs of each kind.
func enqueuing(change func(q *queue)) scene {
	return func(q *queue) func() error {
		q.wait("known")
		q.do("HDEL", ":meta", "layout")
		q.do("HSET", ":meta", "audit", "1000")
		q.do("DEL", ":wake")
		change(q)
		jobs := []lua.NewJob{job("known"), delayed("later", time.Second)}
		for priority := 1; priority <= 4; priority++ {
			jobs = append(jobs, lua.NewJob{ID: "new" + fmt.Sprint(priority), Priority: priority, Body: "."})
		}
		return func() error { return second(lua.Enqueue(q.ctx(), q.client, q.keys, jobs)) }
	}
}

// calling makes one call on a queue with jobs in each state.
func calling(call func(q *queue) error) scene {
	return func(q *queue) func() error {
		everywhere(q)
		return func() error { return call(q) }
	}
}

func taking(op, counter string) scene {
	return func(q *queue) func() error {
		if counter != "" {
			q.do("SET", ":limiter", counter)
		}
		return func() error { return second(lua.Take(q.ctx(), q.client, op, fixedWindow(q.keys.Limiter(), 5), 1)) }
	}
}

func setLimit(max int64, duration string) func(q *queue) error {
	return func(q *queue) error {
		_, _, err := setLimitTexts(q.ctx(), q.client, q.keys, max, duration, "why")
		return err
	}
}

func nothing(*queue) {}

// scenes are all scripts that write, in the situations that make them write differently.
var scenes = map[string]map[string]scene{
	"claim": {
		"all":         claiming(30, nothing),
		"some":        claiming(7, nothing),
		"none":        claiming(0, nothing),
		"enough left": claiming(30, limit("30", "3")),
		"some left":   claiming(30, limit("9", "3")),
		"new window":  claiming(30, limit("5", "")),
		"negative":    claiming(30, limit("5", "-3")),
		"refused":     claiming(30, limit("3", "3")),
		"paused":      claiming(7, func(q *queue) { q.do("HSET", ":meta", "paused", "1") }),
		"clock back": claiming(2, func(q *queue) {
			far := fmt.Sprint(start + time.Hour.Milliseconds())
			q.do("HSET", ":state", "seen", far)
			q.do("ZADD", ":delayed", far, "sent")
			for _, member := range q.list("ZRANGE :active 0 -1") {
				q.do("ZADD", ":active", far, member)
			}
		}),
		"lines":            claimingLined(100, nothing),
		"some lines":       claimingLined(3, nothing),
		"lines, paused":    claimingLined(9, func(q *queue) { q.do("HSET", ":meta", "paused", "1") }),
		"lines, all stale": claimingLined(9, func(q *queue) { q.limit("set chat max=2") }),
		"lines, closed":    claimingLined(9, func(q *queue) { q.close("", "", "+1000") }),
		"lines, all refused": claimingLined(9, func(q *queue) {
			q.limit("set all max=3 window=60000")
			q.limit("set all.flight max=500 algorithm=concurrency")
		}),
		"lines, uncounted":  claimingLined(9, func(q *queue) { q.do("ZUNIONSTORE", ":uncounted", "1", ":active") }),
		"lines, clock back": claimingLined(9, far),
	},
	"enqueue": {
		"no limit":      enqueuing(nothing),
		"refused":       enqueuing(limit("1", "1")),
		"misconfigured": enqueuing(limit("x", "1")),
		"limits":        callingLined(enqueueLined),
		"limits, closed": func(q *queue) func() error {
			lined(q)
			q.limit("set all max=1 algorithm=token_bucket")
			q.close("", "", "+1000")
			q.do("DEL", ":wake", ":audit")
			return func() error { return enqueueLined(q) }
		},
	},
	"settle": {
		"each outcome": func(q *queue) func() error {
			jobs := settled(q)
			return func() error { return second(q.trySettle(jobs...)) }
		},
		"real costs": realCosts,
	},
	"named": {
		"set new":        naming("set new max=5 by=tenant unit=tokens"),
		"changed":        naming("set chat max=5 window=500"),
		"with overrides": naming("set chat", lua.NamedValue{Value: "a:b", Max: "0"}, lua.NamedValue{Value: "a", Max: "2", Window: "50"}),
		"without":        naming("set tpm", lua.NamedValue{Value: "p"}),
		"unset":          naming("unset tpm"),
		"reset":          naming("reset chat"),
		"reset a value":  naming("reset chat", lua.NamedValue{Value: "a"}),
		"reset for all":  naming("reset bits"),
		"concurrency":    naming("set places max=5 by=chat algorithm=concurrency"),
		"set again": func(q *queue) func() error {
			lined(q)
			q.limit("unset flight")
			q.limit("unset chat")
			q.do("DEL", ":audit", ":wake")
			return func() error { _, _, err := q.tryLimit("set flight max=1 by=chat algorithm=concurrency"); return err }
		},
	},
	"close": {
		"queue":        closing("close", "", "", "+1000"),
		"value":        closing("close", "model", "m", "@1800000009000"),
		"no longer":    closing("close", "region", "r", "+1"),
		"reopened":     closing("reopen", "region", "r", ""),
		"reopen queue": closing("reopen", "", "", ""),
		"some are over": func(q *queue) func() error {
			lined(q)
			q.do("ZADD", ":closed", "5", "model:x", "6", "queue")
			q.do("HSET", ":reasons", "model:x", "5\nwhy", "queue", "5\nwhy")
			return func() error {
				_, _, err := lua.Close(q.ctx(), q.client, q.keys, "close", "", "", "+10", "new")
				return err
			}
		},
	},
	"extend": {
		"places": extendLined,
		"some": func(q *queue) func() error {
			jobs := settled(q)
			return func() error { return second(lua.Extend(q.ctx(), q.client, q.keys, time.Hour, jobs)) }
		},
	},
	"limit": {
		"set":    calling(setLimit(5, "10")),
		"lifted": calling(setLimit(0, "")),
		"mended": func(q *queue) func() error {
			limit("x", "1")(q)
			q.do("PEXPIRE", ":limiter", "99000")
			q.do("HSET", ":meta", "audit", "1000")
			return func() error { return setLimit(5, "10")(q) }
		},
	},
	"look": {
		"overdue": looking(lua.Busy, 2, func(q *queue) { q.do("HSET", ":state", "want", fmt.Sprint(start-21)) }),
		"nothing": looking(lua.Idle, 0, func(q *queue) { q.do("HSET", ":meta", "max", "1", "paused", "1") }),
		"leaving": looking(lua.Leaving, 1, func(q *queue) {}),
		"in turn": looking(lua.Idle, 0, func(q *queue) { q.do("HSET", ":state", "deputy", "w2", "deputy_till", fmt.Sprint(start+900)) }),
	},
	"pause": {
		"paused":  calling(func(q *queue) error { return second(lua.Pause(q.ctx(), q.client, q.keys, true, "why")) }),
		"resumed": calling(func(q *queue) error { return second(lua.Pause(q.ctx(), q.client, q.keys, false, "why")) }),
	},
	"run": {
		"delayed": calling(func(q *queue) error { return second(runNow(q, "due1", "sent")) }),
		"some":    calling(func(q *queue) error { return second(runNow(q, "due1", "due4", "sent", "sent", "wait1", "none")) }),
		"lines":   callingLined(func(q *queue) error { return second(runNow(q, "a2", "a3", "r1", "m2", "o2", "s2", "new")) }),
	},
	"redrive": {
		"some": calling(func(q *queue) error { return second(redrive(q, "dead1", "dead4", "dead4", "wait1", "none")) }),
		"lines": func(q *queue) func() error {
			lined(q)
			q.do("ZADD", ":dead", "1", "free")
			return func() error { return second(redrive(q, "free", "a2", "r1")) }
		},
	},
	"remove": {
		"waiting":   calling(func(q *queue) error { return second(remove(q, "wait1", "wait4", "back", "back", "active")) }),
		"delayed":   calling(func(q *queue) error { return second(remove(q, "due1", "sent", "none")) }),
		"dead":      calling(func(q *queue) error { return second(remove(q, "dead1", "dead4")) }),
		"completed": calling(func(q *queue) error { return second(remove(q, "kept1")) }),
		"lines":     callingLined(func(q *queue) error { return second(remove(q, "a2", "a3", "r1", "m2", "o2", "s2", "new", "t1")) }),
	},
	"drain": {
		"waiting": calling(func(q *queue) error { _, _, err := lua.Drain(q.ctx(), q.client, q.keys, false, 100); return err }),
		"delayed": calling(func(q *queue) error { _, _, err := lua.Drain(q.ctx(), q.client, q.keys, true, 100); return err }),
		"two":     calling(func(q *queue) error { _, _, err := lua.Drain(q.ctx(), q.client, q.keys, true, 2); return err }),
		"lines":   callingLined(func(q *queue) error { _, _, err := lua.Drain(q.ctx(), q.client, q.keys, false, 100); return err }),
		"a line":  callingLined(func(q *queue) error { _, _, err := lua.Drain(q.ctx(), q.client, q.keys, true, 9); return err }),
	},
	"mend": {
		"jobs":   mending(astray),
		"lines":  mending(brokenLines),
		"leases": mending(ownless),
	},
	"take": {
		"new":     taking("take", ""),
		"more":    taking("take", "1"),
		"most":    taking("upto", "1"),
		"refused": taking("take", "5"),
		"refund":  taking("refund", "3"),
		"reset":   taking("reset", "3"),
	},
	"takeall": {
		"new":     takingAll("take", ""),
		"more":    takingAll("take", "1"),
		"most":    takingAll("upto", "1"),
		"refused": takingAll("take", "5"),
	},
}

func runNow(q *queue, ids ...string) ([]string, error) {
	return lua.RunNow(q.ctx(), q.client, q.keys, ids)
}

func redrive(q *queue, ids ...string) ([]string, error) {
	return lua.Redrive(q.ctx(), q.client, q.keys, ids)
}

func remove(q *queue, ids ...string) ([]string, error) {
	return lua.Remove(q.ctx(), q.client, q.keys, ids)
}

// A play is a scene that is set.
type play struct {
	script string
	first  bool // of the script's scenes
	call   func() error
	again  func() // makes the server's contents what they were
}

// eachScene sets each scene of the scripts on a server of the script's own, whose clock stands still.
func eachScene(t *testing.T, test func(t *testing.T, q *queue, p play)) {
	for script, scenes := range scenes {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			shared := clocked(t)
			for i, name := range slices.Sorted(maps.Keys(scenes)) {
				t.Run(name, func(t *testing.T) {
					q := shared.another(t)
					q.do("FLUSHALL")
					call := scenes[name](q)
					saved := valkey.Commands{q.client.B().Arbitrary("FLUSHALL").Build().Pin()}
					for key := range q.contents() {
						ttl := fmt.Sprint(max(0, q.number("PTTL "+key)))
						saved = append(saved, q.client.B().Arbitrary("RESTORE").Keys(key).Args(ttl, q.text("DUMP "+key)).Build().Pin())
					}
					test(t, q, play{script, i == 0, call, func() {
						for _, r := range q.client.DoMulti(t.Context(), saved...) {
							require.NoError(t, r.Error())
						}
					}})
				})
			}
		})
	}
}

// unchanged fails unless the call leaves the server as it is or returns no error.
func (q *queue) unchanged(call func() error, what ...any) error {
	q.Helper()
	before := q.digest()
	err := call()
	if err != nil && before != q.digest() {
		q.Errorf("%v: failed, yet changed something: %v", fmt.Sprint(what...), err)
	}
	return err
}

// looking is a look by the deputy.
func looking(stance string, push int, set func(q *queue)) scene {
	return func(q *queue) func() error {
		lined(q)
		q.do("HSET", ":state", "holder", "w1", "deputy", "w1", "alarm", fmt.Sprint(start+500),
			"deputy_till", fmt.Sprint(start+1), "net", fmt.Sprint(start+9000), "want", "0")
		set(q)
		return func() error { return second(lua.Look(q.ctx(), q.client, q.keys, "w1", stance, true, push)) }
	}
}

func TestScenesCoverTheScriptsThatWrite(t *testing.T) {
	t.Parallel()
	for _, name := range lua.Names() {
		if !strings.Contains(flags[name], "no-writes") {
			assert.NotEmpty(t, scenes[name], name)
		}
	}
}

// A call that fails changes nothing, whatever type any key has; and it fails if it changes a key of the wrong type.
func TestF41WrongTypes(t *testing.T) {
	t.Parallel()
	eachScene(t, func(t *testing.T, q *queue, p play) {
		before := q.contents()
		require.NoError(t, p.call())
		after := q.contents()
		require.NotEqual(t, before, after, "the scene changes nothing")

		wants := map[string]string{} // the types of the declared keys
		for _, name := range lua.Declared(p.script) {
			key := q.keys.Limiter()
			if name != "bucket" {
				key = q.key(name)
			}
			wants[key] = lua.Kind(name)
		}
		keys := slices.Collect(maps.Keys(wants))
		for _, key := range slices.Concat(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after))) {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
		p.again()
		for _, key := range keys {
			for kind := range writers {
				// Every type of every declared key in one scene of the script; one of each key, some other, in all of them.
				if kind == wants[key] || kind != "set" && (wants[key] == "" || !p.first) {
					continue
				}
				if before[key] != "" {
					q.do("RENAME", key, ":aside")
				}
				q.do(append([]string{writers[kind][0], key}, writers[kind][1:]...)...)
				err := q.unchanged(p.call, key, " as ", kind)
				if err == nil {
					ignores := key == q.keys.Limiter() && (p.script == "limit" || strings.HasSuffix(t.Name(), "/reset"))
					if wants[key] != "" && before[key] != after[key] && !ignores {
						t.Errorf("%s is a %s, yet nothing failed", key, kind)
					}
					p.again()
					continue
				}
				if wants[key] != "" {
					var corrupt *lua.CorruptError
					require.ErrorAs(t, err, &corrupt)
					assert.Equal(t, lua.CorruptError{Key: key, Type: kind, Want: wants[key]}, *corrupt)
				}
				q.do("DEL", key)
				if before[key] != "" {
					q.do("RENAME", ":aside", key)
				}
			}
		}
	})
}

func TestGarbageInTheState(t *testing.T) {
	t.Parallel()
	eachScene(t, func(t *testing.T, q *queue, p play) {
		if !slices.Contains(lua.Declared(p.script), "state") {
			return
		}
		good := q.digest()
		fields := []string{"seq", "alarm", "largest", "want"}
		if p.script != "enqueue" && p.script != "settle" { // these read no more of it
			fields = append(fields, "seen", "held", "deputy_till", "net")
		}
		for _, field := range fields {
			was := q.text("HGET :state " + field)
			for _, value := range []string{"", "abc", "-1", "05", "1.5", "1e3", " 1", "9007199254740992"} {
				q.do("HSET", ":state", field, value)
				var corrupt *lua.CorruptError
				require.ErrorAs(t, q.unchanged(p.call, field, "=", value), &corrupt)
				assert.Equal(t, lua.CorruptError{Key: q.key("state"), Value: field + "=" + value}, *corrupt)
			}
			q.do("HDEL", ":state", field)
			if was != "" {
				q.do("HSET", ":state", field, was)
			}
		}
		require.Equal(t, good, q.digest())
		q.do("HSET", ":state", "seq", "140737488355328")
		require.Error(t, q.unchanged(p.call, "a sequence that records have no room for"))
		for _, field := range fields {
			q.do("HSET", ":state", field, "140737488355327")
		}
		require.NoError(t, p.call())
	})
}

// A record that is none, or one cut short, stops no queue.
func TestGarbageRecords(t *testing.T) {
	t.Parallel()
	garbage := append(slices.Clone(badRecords[:16]), head)
	eachScene(t, func(t *testing.T, q *queue, p play) {
		records := q.list("KEYS " + q.keys.Job("*"))
		slices.Sort(records)
		for i := range 2 * len(garbage) {
			p.again()
			for j, key := range records {
				if (i+j)%2 == 0 {
					q.do("SET", key, garbage[(i/2+j)%len(garbage)])
				}
			}
			assert.NoError(t, q.unchanged(p.call))
		}
	})
}
