package lua_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

// BenchmarkClaim claims 100 jobs: the call, the server's part and the decoding of its answer.
func BenchmarkClaim(b *testing.B) {
	b.ReportAllocs()
	q := newQueue(b)
	batch := ids(100)
	for b.Loop() {
		b.StopTimer()
		q.wait(batch...)
		b.StartTimer()
		c := q.claim(len(batch))
		b.StopTimer()
		require.Len(b, c.Records, len(batch))
		jobs := make([]lua.Settlement, len(c.IDs))
		for i, id := range c.IDs {
			jobs[i] = lua.Settlement{Outcome: lua.Complete, ID: id, Token: c.Token}
		}
		q.settle(jobs...)
		b.StartTimer()
	}
}

func BenchmarkParseRecord(b *testing.B) {
	payload := make([]byte, 100)
	for name, header := range map[string]lua.Header{
		"plain": {},
		"full": {
			Name: "mail", MaxAttempts: 5, Timeout: time.Second, StartBy: time.Minute, Retain: time.Hour,
			Keys: map[string]string{"tenant": "acme", "model": "small"}, Cost: map[string]int64{"tokens": 1800},
			TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			record := head + lua.Body(header, payload)
			for b.Loop() {
				if _, err := lua.ParseRecord(record); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
