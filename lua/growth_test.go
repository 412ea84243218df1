package lua_test

import (
	"bufio"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/lua"
)

// A spy sees each command that scripts run.
type spy struct {
	*queue
	conn  net.Conn
	lines *bufio.Scanner
}

func newSpy(t *testing.T) *spy {
	t.Helper()
	s, clock, err := valkeyd.StartWithClock(valkeyd.Options{})
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	clock.Set(start)
	address, err := url.Parse(s.URL())
	require.NoError(t, err)
	conn, err := net.Dial("unix", address.Path)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20) // the text of a script is one line
	return &spy{queue: queueOn(t, dial(t, s), clock), conn: conn, lines: lines}
}

var word = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// watch returns the commands of the scripts that do runs, with their arguments.
func (s *spy) watch(do func()) (commands [][]string) {
	s.Helper()
	if _, err := s.conn.Write([]byte("MONITOR\r\n")); err != nil {
		s.Fatal(err)
	}
	require.True(s, s.lines.Scan())
	require.Equal(s, "+OK", s.lines.Text())
	do()
	s.run("ECHO done")
	for s.lines.Scan() {
		line := s.lines.Text()
		if strings.HasSuffix(line, `"ECHO" "done"`) {
			return commands
		}
		if !strings.Contains(line, "[0 lua]") {
			continue
		}
		var command []string
		for _, quoted := range word.FindAllString(line, -1) {
			text, err := strconv.Unquote(quoted)
			require.NoError(s, err)
			command = append(command, text)
		}
		commands = append(commands, command)
	}
	s.Fatal(s.lines.Err())
	return nil
}

// fill enqueues n jobs, a thousand at a time.
func (q *queue) fill(n int, when string) {
	q.Helper()
	jobs := make([]lua.NewJob, 1000)
	for from := 0; from < n; from += len(jobs) {
		for i := range jobs {
			jobs[i] = lua.NewJob{ID: strconv.Itoa(from + i), Priority: 2, When: when, Body: "."}
		}
		q.enqueue(jobs...)
	}
}

// What one call costs does not depend on how many jobs there are: the scripts run the same commands, and no command reads or
// writes more than the call may.
func TestF40CostDoesNotGrow(t *testing.T) {
	t.Parallel()
	const k = 10
	claim := func(q *queue) { q.claim(k) }
	page := func(state string) func(q *queue) {
		return func(q *queue) { require.NotEmpty(q, q.page(state, 0, k)) }
	}
	for name, c := range map[string]struct {
		set  func(q *queue, n int)
		call func(q *queue)
		many int
	}{
		"claim of many waiting": {func(q *queue, n int) { q.fill(n, "") }, claim, 100_000},
		"claim of many refused": {func(q *queue, n int) { q.fill(n, ""); limit("1", "1")(q) }, claim, 10_000},
		"claim of many due":     {func(q *queue, n int) { q.fill(n, "+1000"); q.clock.Advance(time.Second) }, claim, 100_000},
		"claim of many delayed": {func(q *queue, n int) { q.fill(n, "+1000") }, claim, 10_000},
		"claim of many active":  {func(q *queue, n int) { q.fill(n, ""); q.lease(n) }, claim, 10_000},
		"claim of many ended":   {func(q *queue, n int) { q.fill(n, ""); q.lease(n); q.clock.Advance(lease) }, claim, 10_000},
		"claim of many that came back": {func(q *queue, n int) {
			q.fill(n, "")
			q.move(":back")
		}, claim, 10_000},
		"claim of many sent back": {func(q *queue, n int) {
			q.fill(n, "")
			q.move(":sent", ":delayed")
		}, claim, 10_000},
		"claim of many sent back, clock back": {func(q *queue, n int) {
			q.fill(n, "")
			q.move(":sent", ":delayed")
			limit("1", "1")(q)
			q.do("HSET", ":state", "seen", fmt.Sprint(start+time.Hour.Milliseconds()))
		}, claim, 10_000},
		"claim of many keys over budget": {func(q *queue, n int) { q.lined(n) }, claim, 5000},
		"claim of many keys that opened": {func(q *queue, n int) { q.lined(n); q.clock.Advance(time.Minute) }, func(q *queue) {
			require.Len(q, q.claim(k).IDs, k)
		}, 5000},
		"enqueue":          {func(q *queue, n int) { q.fill(n, "") }, func(q *queue) { q.wait("a", "b") }, 10_000},
		"page of waiting":  {func(q *queue, n int) { q.fill(n, ""); q.wait("a", "b") }, page("wait"), 10_000},
		"page of delayed":  {func(q *queue, n int) { q.fill(n, "+1000") }, page("delayed"), 10_000},
		"page of returned": {func(q *queue, n int) { q.fill(n, ""); q.move(":back"); q.wait("a") }, page("wait"), 10_000},
		"drain": {func(q *queue, n int) { q.fill(n, "") }, func(q *queue) {
			_, _, err := lua.Drain(q.ctx(), q.client, q.keys, true, k)
			require.NoError(q, err)
		}, 10_000},
		"job": {func(q *queue, n int) { q.fill(n, "") }, func(q *queue) { require.Equal(q, "wait", q.state("999")) }, 10_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var few []string
			for _, n := range []int{1000, c.many} {
				s := newSpy(t)
				c.set(s.queue, n)
				s.do("DEL", ":wake")
				commands := s.watch(func() { c.call(s.queue) })
				require.NotEmpty(t, commands)
				shapes := make([]string, len(commands))
				for i, command := range commands {
					shapes[i] = fmt.Sprint(command[0], " ", len(command))
					require.LessOrEqual(t, len(command), 2*(128+k)+4, command[0])
					requireBounded(t, command, 128+k+1)
				}
				if few == nil {
					few = shapes
				}
				require.Equal(t, few, shapes, "%d against 1000", n)
			}
		})
	}
}

// A claim reads payloads in parts of about 256 KiB, since it may have to stop there.
func TestPayloadsAreReadInParts(t *testing.T) {
	t.Parallel()
	for size, most := range map[int]int{0: 31, 10 << 10: 25, 100 << 10: 2, 300 << 10: 1} {
		s := newSpy(t)
		for _, id := range ids(40) {
			s.enqueue(lua.NewJob{ID: id, Priority: 2, Body: lua.Body(lua.Header{}, make([]byte, size))})
		}
		largest, read := 0, 0
		for _, command := range s.watch(func() { s.claim(30) }) {
			if command[0] == "MGET" {
				largest = max(largest, len(command)-1)
				read += len(command) - 1
			}
		}
		require.Equal(t, most, largest, "payloads of %d bytes", size)
		require.LessOrEqual(t, read, 31)
	}
}

// The payloads of jobs that are refused count too: a claim that has read 256 KiB of them says more.
func TestRefusedPayloadsAreReadInParts(t *testing.T) {
	t.Parallel()
	s := newSpy(t)
	s.limit("set chat max=1 by=chat window=3600000")
	body := lua.Body(lua.Header{Keys: map[string]string{"chat": "a"}}, make([]byte, 500<<10))
	for _, id := range ids(300) {
		s.enqueue(lua.NewJob{ID: id, Priority: 2, Body: body})
	}
	require.Len(t, s.claim(1).IDs, 1)
	read := 0
	for _, command := range s.watch(func() {
		for range 3 {
			c := s.claim(10)
			require.True(t, c.More)
			require.Equal(t, 1, len(c.SentBack))
		}
	}) {
		if command[0] == "MGET" {
			read += len(command) - 1
		}
	}
	require.Equal(t, 3, read)
}

// What needs the keys and costs of a job reads the start of its record, however large its payload is, and finds the last of them in the
// largest header that a producer may make.
func TestPayloadsAreNotReadForTheirHeaders(t *testing.T) {
	t.Parallel()
	s := newSpy(t)
	h := lua.Header{
		Name: strings.Repeat("n", 128), MaxAttempts: 4095, Timeout: 87600 * time.Hour, StartBy: 87600 * time.Hour, Retain: 87600 * time.Hour,
		Keys: map[string]string{}, Cost: map[string]int64{}, TraceParent: strings.Repeat("p", 55), TraceState: strings.Repeat("s", 16<<10),
	}
	for i := range 16 {
		h.Keys[strings.Repeat("k", 126)+fmt.Sprint(10+i)] = strings.Repeat("v", 256)
		h.Cost[strings.Repeat("u", 126)+fmt.Sprint(10+i)] = 1 << 51
	}
	key, value, unit := strings.Repeat("k", 126)+"25", strings.Repeat("v", 256), strings.Repeat("u", 126)+"25"
	body := lua.Body(h, make([]byte, 100<<10))
	require.Less(t, strings.Index(body, "w55:"), 9<<10)
	s.enqueue(lua.NewJob{ID: "a", Priority: 2, Body: body}, lua.NewJob{ID: "b", Priority: 2, Body: body}, lua.NewJob{ID: "c", Priority: 2, Body: body})
	s.limit("set tpm max=9007199254740991 window=3600000 by=" + key + " unit=" + unit)
	c := s.claim(2)
	require.Equal(t, []string{"a", "b"}, c.IDs)
	commands := s.watch(func() {
		s.settle(lua.Settlement{Outcome: lua.Limited, ID: "a", Token: c.Token, Wait: time.Second, Text: key + "\n429", Costs: map[string]int64{unit: 7}})
		s.limit("set flight max=5 by=" + key + " algorithm=concurrency")
		s.limit("set again max=5 by=" + key + " algorithm=concurrency")
		s.do("DEL", ":limiter:again:"+value)
		s.do("ZUNIONSTORE", ":uncounted", "1", ":active")
		s.claim(0)
		e, _, err := lua.Explain(s.ctx(), s.client, s.keys, "a", lease)
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(e.Asks, func(a lua.Ask) bool { return a.Unit == unit && a.Cost == 1<<51 }))
		require.NoError(t, second(runNow(s.queue, "a")))
		require.NoError(t, second(redrive(s.queue, "a")))
		require.NoError(t, second(remove(s.queue, "c")))
	})
	for _, command := range commands {
		if len(command) > 1 && strings.HasPrefix(command[1], s.key("job:")) {
			require.NotContains(t, []string{"GET", "MGET"}, command[0])
		}
	}
	require.EqualValues(t, 7+1<<51, s.bucket("tpm", value).Used)
	require.EqualValues(t, 1, s.bucket("flight", value).Used)
	require.EqualValues(t, 1, s.bucket("again", value).Used)
	require.Contains(t, s.list("ZRANGE :closed 0 -1"), key+":"+value)
}

// requireBounded fails if a range is open or longer than most.
func requireBounded(t *testing.T, command []string, most int) {
	t.Helper()
	name := command[0]
	require.NotEqual(t, "LPOS", name, "it looks at the whole list")
	if name != "LRANGE" && name != "ZRANGE" || slices.Contains(command, "BYSCORE") {
		if name == "ZRANGE" {
			require.Contains(t, command, "LIMIT")
			count, err := strconv.Atoi(command[slices.Index(command, "LIMIT")+2])
			require.NoError(t, err)
			require.True(t, 0 <= count && count <= most, "%q", command)
		}
		return
	}
	from, err := strconv.Atoi(command[2])
	require.NoError(t, err)
	to, err := strconv.Atoi(command[3])
	require.NoError(t, err)
	require.True(t, 0 <= from && to >= 0 && to-from < most, "%q", command)
}

// lease claims n jobs.
func (q *queue) lease(n int) {
	q.Helper()
	for left := n; left > 0; left -= 1000 {
		require.Len(q, q.claim(1000).IDs, 1000)
	}
}

// move moves all jobs of the list into sets, by their sequence.
func (q *queue) move(sets ...string) {
	q.Helper()
	n := int(q.number("LLEN :wait2"))
	q.do("DEL", ":wait2")
	for from := 0; from < n; from += 1000 {
		var members []string
		for i := from; i < from+1000; i++ {
			place := strconv.FormatInt(2<<50+int64(i)+1, 10)
			members = append(members, place, strconv.Itoa(i))
		}
		for _, set := range sets {
			if set == ":delayed" {
				for i := 0; i < len(members); i += 2 {
					members[i] = strconv.Itoa(start + 2*int(time.Hour.Milliseconds()))
				}
			}
			q.do(append([]string{"ZADD", set}, members...)...)
		}
	}
}

// lined has a job wait in each of n lines.
func (q *queue) lined(n int) {
	q.Helper()
	q.limit("set chat max=1 window=60000 by=chat algorithm=token_bucket")
	for from := 0; from < n; from += 500 {
		jobs := make([]lua.NewJob, 1000)
		for i := range jobs {
			jobs[i] = carries(fmt.Sprint(2*from+i), fmt.Sprint("chat=", from+i/2))
		}
		q.enqueue(jobs...)
	}
	ids := q.granted(10 * n)
	require.Len(q, ids, n)
	require.EqualValues(q, n, q.number("ZCARD :lines"))
	q.do("DEL", ":active") // their leases are of no interest
	q.enqueue(job("last"))
}
