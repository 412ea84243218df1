package lua_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

// head is what scripts put before the body: layout, priority, sequence, time, counters.
const head = "2" + "00000000002a" + "018cc251f40" + "003" + "0004" + "5" + "0"

const nameBytes = "ABCXYZabcxyz0189._-"

func pick(r *rand.Rand, from string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = from[r.IntN(len(from))]
	}
	return string(b)
}

// randomBytes are bytes of any kind, or what looks like a record or a header.
func randomBytes(r *rand.Rand) string {
	switch r.IntN(5) {
	case 0:
		return ""
	case 1:
		return head + "n3:abc."
	case 2:
		return pick(r, "nmtsrkcwx0123456789:=.\n\r\x00", r.IntN(60))
	case 3:
		return strings.Repeat("\x00\xff\xfe é", r.IntN(100))
	}
	b := make([]byte, r.IntN(300))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

func randomHeader(r *rand.Rand) lua.Header {
	var h lua.Header
	some := func() bool { return r.IntN(2) == 0 }
	ms := func() time.Duration { return time.Duration(1+r.Int64N(1e12)) * time.Millisecond }
	if some() {
		h.Name = pick(r, nameBytes, 1+r.IntN(128))
	}
	if some() {
		h.MaxAttempts = 1 + r.IntN(4095)
	}
	if some() {
		h.Timeout = ms()
	}
	if some() {
		h.StartBy = ms()
	}
	if some() {
		h.Retain = ms()
	}
	for range r.IntN(4) {
		if h.Keys == nil {
			h.Keys, h.Cost = map[string]string{}, map[string]int64{}
		}
		h.Keys[pick(r, nameBytes, 1+r.IntN(20))] = randomBytes(r)
		h.Cost[pick(r, nameBytes, 1+r.IntN(20))] = r.Int64N(1 << 53)
	}
	if some() {
		h.TraceParent, h.TraceState = randomBytes(r), randomBytes(r)
	}
	return h
}

func TestRecordRoundTrip(t *testing.T) {
	t.Parallel()
	r := random(t)
	for range 5000 {
		h, payload := randomHeader(r), randomBytes(r)
		body := lua.Body(h, []byte(payload))
		got, err := lua.ParseRecord(head + body)
		require.NoError(t, err)
		require.Equal(t, h, got.Header)
		require.Equal(t, payload, string(got.Payload))
		got.Header, got.Payload = lua.Header{}, nil
		require.EqualValues(t, 2<<50+42, got.Place())
		want, _ := lua.ParseRecord(head + ".")
		want.Payload = nil
		require.Equal(t, want, got)
	}
	got, err := lua.ParseRecord(head + ".")
	require.NoError(t, err)
	assert.Equal(t, 2, got.Priority)
	assert.EqualValues(t, 0x18cc251f40, got.Enqueued.UnixMilli())
	assert.Equal(t, [3]int{3, 4, 5}, [3]int{got.Attempts, got.Deferrals, got.Reclaims})
}

func TestShortTimesDoNotBecomeNone(t *testing.T) {
	t.Parallel()
	h := lua.Header{Timeout: 1, StartBy: time.Millisecond + 1, Retain: time.Hour}
	got, err := lua.ParseRecord(head + lua.Body(h, nil))
	require.NoError(t, err)
	assert.Equal(t, lua.Header{Timeout: time.Millisecond, StartBy: 2 * time.Millisecond, Retain: time.Hour}, got.Header)
}

func TestUnknownFieldsOfTheHeaderAreIgnored(t *testing.T) {
	t.Parallel()
	got, err := lua.ParseRecord(head + "z3:abcn1:x.payload")
	require.NoError(t, err)
	assert.Equal(t, lua.Header{Name: "x"}, got.Header)
	assert.Equal(t, "payload", string(got.Payload))
}

// badRecords are texts that are no record.
var badRecords = []string{
	"", "1", head, head[:20], "0" + head[1:] + ".", "5" + head[1:] + ".", "a" + head[1:] + ".", "foo" + head + ".",
	head[:1] + "+" + head[2:] + ".", head[:1] + "-" + head[2:] + ".", head[:12] + "g" + head[13:] + ".",
	head[:20] + "_" + head[21:] + ".", head[:26] + " " + head[27:] + ".", head[:30] + "x" + head[31:] + ".",
	head[:31] + "\x00" + head[32:] + ".", head[:32] + "x.", head + "n", head + "n:", head + "n1:", head + "n1:a",
	head + "n2:a.", head + "n-1:a.", head + "nx:a.", head + "n9999999999999999999:a.", head + ":1:a.",
	head + "c1:a.", head + "c3:a=b.", head + "n1:abc",
}

func TestBadRecordsAreRefused(t *testing.T) {
	t.Parallel()
	for _, s := range badRecords {
		_, err := lua.ParseRecord(s)
		assert.Error(t, err, "%q", s)
	}
}

func FuzzParseRecord(f *testing.F) {
	for _, s := range badRecords {
		f.Add(s)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		f.Add(head + lua.Body(randomHeader(r), []byte(randomBytes(r))))
	}
	f.Fuzz(func(t *testing.T, s string) {
		record, err := lua.ParseRecord(s)
		if err != nil {
			return
		}
		if record.Place() < 1<<50 || record.Place() >= 5<<50 {
			t.Errorf("place %d", record.Place())
		}
	})
}

// view is how scripts read records: the place and the counters of each, or nothing where it is none.
var view = lua.BindProbe[struct{}](`#!lua flags=no-writes
local meta      = KEYS[1]
local rest      = 1
-- include num.lua
-- include record.lua
local reply = {'read'}
for i = rest, #ARGV do
  local place = place_of(ARGV[i])
  table.insert(reply, not place and '' or table.concat({text(place), counters.read(ARGV[i], 'attempts'),
    counters.read(ARGV[i], 'deferrals'), counters.read(ARGV[i], 'reclaims')}, ' '))
end
return reply
`, "read")

// Scripts read at least what Go reads, and the same; what only scripts read has a good head and a bad header.
func TestScriptsReadRecordsAsGoDoes(t *testing.T) {
	t.Parallel()
	q, r := newQueue(t), random(t)
	records := slices.Clone(badRecords)
	for range 2000 {
		record := []byte(fmt.Sprintf("1%d%012x%011x%03x%04x%02x0", 1+r.IntN(4), r.Int64N(1<<48), r.Int64N(1<<44),
			r.IntN(1<<12), r.IntN(1<<16), r.IntN(1<<8)) + lua.Body(lua.Header{Name: "n"}, nil))
		if r.IntN(2) == 0 {
			record[r.IntN(len(record))] = byte(r.Uint32())
		}
		if r.IntN(4) == 0 {
			record = record[:r.IntN(len(record))]
		}
		records = append(records, string(record))
	}
	_, seen, err := view.Run(t.Context(), q.client, q.keys, struct{}{}, records...)
	require.NoError(t, err)
	for i, record := range records {
		got, err := lua.ParseRecord(record)
		if err == nil {
			want := fmt.Sprint(got.Place(), got.Attempts, got.Deferrals, got.Reclaims)
			require.Equal(t, want, seen[i], "%q", record)
		} else if seen[i] != "" {
			_, err := lua.ParseRecord(record[:len(head)] + ".")
			require.NoError(t, err, "%q", record)
		}
	}
}

func TestJobsComeOutAsTheyWentIn(t *testing.T) {
	t.Parallel()
	q, r := newQueue(t), random(t)
	headers, payloads := map[string]lua.Header{}, map[string]string{}
	var jobs []lua.NewJob
	for i := range 300 {
		id := strconv.Itoa(i)
		headers[id], payloads[id] = randomHeader(r), randomBytes(r)
		jobs = append(jobs, lua.NewJob{ID: id, Priority: 1 + r.IntN(4), Body: lua.Body(headers[id], []byte(payloads[id]))})
	}
	before := q.now()
	q.enqueue(jobs...)
	c := q.claim(300)
	require.Len(t, c.IDs, 300)
	for i, id := range c.IDs {
		got, err := lua.ParseRecord(c.Records[i])
		require.NoError(t, err)
		require.Equal(t, headers[id], got.Header)
		require.Equal(t, payloads[id], string(got.Payload))
		require.WithinRange(t, got.Enqueued, time.UnixMilli(before), c.Now)
		require.Equal(t, got, second(q.found(id)))
	}
}

func second[A, B any](_ A, b B) B { return b }
