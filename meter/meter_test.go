package meter_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"

	"github.com/echomq/emq/meter"
)

// rateLimited is a handler's error that names its own class.
type rateLimited struct{}

func (rateLimited) Error() string     { return "status 429" }
func (rateLimited) ErrorType() string { return "429" }

func TestCallsSendTheirNumbers(t *testing.T) {
	const (
		mail    = "messaging.destination.name=mail"
		enqueue = mail + ",messaging.operation.name=enqueue,messaging.operation.type=send,messaging.system=emq"
		claim   = mail + ",messaging.operation.name=claim,messaging.operation.type=receive,messaging.system=emq"
		settle  = mail + ",messaging.operation.name=settle,messaging.operation.type=settle,messaging.system=emq"
		process = mail + ",messaging.operation.name=process,messaging.operation.type=process,messaging.system=emq"
		seconds = "messaging.client.operation.duration 0.25"
		run     = "messaging.process.duration 0.25"
	)
	ctx, d := t.Context(), 250*time.Millisecond
	down := fmt.Errorf("enqueue: %w", rateLimited{})
	rec := newRecorder()
	q := meter.New(rec.options()).Queue("mail")

	for _, c := range []struct {
		name string
		call func()
		want []string
	}{
		{"Sent", func() { q.Sent(ctx, 3, d, nil) },
			[]string{"messaging.client.sent.messages 3 {" + enqueue + "}", seconds + " {" + enqueue + "}"}},
		{"Sent failed", func() { q.Sent(ctx, 3, d, down) },
			[]string{"messaging.client.sent.messages 3 {error.type=429," + enqueue + "}", seconds + " {error.type=429," + enqueue + "}"}},
		{"Claimed", func() { q.Claimed(2, d, nil) },
			[]string{seconds + " {" + claim + "}", "messaging.client.consumed.messages 2 {" + claim + "}"}},
		{"Claimed none", func() { q.Claimed(0, d, nil) },
			[]string{seconds + " {" + claim + "}", "emq.claim.empty 1 {" + mail + "}"}},
		{"Claimed failed", func() { q.Claimed(0, d, down) },
			[]string{seconds + " {error.type=429," + claim + "}"}},
		{"Settled", func() { q.Settled(d, nil) },
			[]string{seconds + " {" + settle + "}"}},
		{"Settled failed", func() { q.Settled(d, errors.New("down")) },
			[]string{seconds + " {error.type=*errors.errorString," + settle + "}"}},
		{"Completed", func() { q.Processed(ctx, d, meter.Completed, nil) },
			[]string{run + " {emq.job.outcome=completed," + process + "}"}},
		{"Retried", func() { q.Processed(ctx, d, meter.Retried, down) },
			[]string{run + " {emq.job.outcome=retried,error.type=429," + process + "}"}},
		{"Dead without a reason", func() { q.Processed(ctx, d, meter.Dead, nil) },
			[]string{run + " {emq.job.outcome=dead,error.type=_OTHER," + process + "}"}},
		{"Deferred", func() { q.Processed(ctx, d, meter.Deferred, down) },
			[]string{run + " {emq.job.outcome=deferred," + process + "}"}},
		{"HandedBack", func() { q.Processed(ctx, d, meter.HandedBack, context.Canceled) },
			[]string{run + " {emq.job.outcome=handed_back," + process + "}"}},
		{"outcome of another name", func() { q.Processed(ctx, d, "skipped", nil) },
			[]string{run + " {emq.job.outcome=skipped," + process + "}"}},
		{"QueueTime", func() { q.QueueTime(d) },
			[]string{"emq.job.queue_time 0.25 {" + mail + "}"}},
		{"QueueTime before its time", func() { q.QueueTime(-d) },
			[]string{"emq.job.queue_time 0 {" + mail + "}"}},
		{"Busy", func() { q.Busy(1); q.Busy(-1) },
			[]string{"emq.worker.busy 1 {" + mail + "}", "emq.worker.busy -1 {" + mail + "}"}},
		{"LeaseLost", func() { q.LeaseLost(2); q.LeaseLost(0) },
			[]string{"emq.lease.lost 2 {" + mail + "}"}},
		{"Reclaimed", func() { q.Reclaimed(2); q.Reclaimed(-1) },
			[]string{"emq.lease.reclaimed 2 {" + mail + "}"}},
		{"Admitted", func() { q.Admitted(5); q.Admitted(0) },
			[]string{"emq.rate_limit.decisions 5 {emq.rate_limit.outcome=admitted," + mail + "}"}},
		{"Unlimited", func() { q.Unlimited(5) },
			[]string{"emq.rate_limit.decisions 5 {emq.rate_limit.outcome=unlimited," + mail + "}"}},
		{"RateLimitHit", func() { q.RateLimitHit(d) },
			[]string{"emq.rate_limit.hit 1 {" + mail + "}",
				"emq.rate_limit.decisions 1 {emq.rate_limit.outcome=deferred," + mail + "}",
				"emq.rate_limit.delay 0.25 {" + mail + "}"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.call()
			require.Equal(t, c.want, rec.take())
		})
	}
}

func TestQueueIsOnePerName(t *testing.T) {
	m := meter.New(newRecorder().options())
	require.Same(t, m.Queue("mail"), m.Queue("mail"))
	require.NotSame(t, m.Queue("mail"), m.Queue("chat"))
	require.Nil(t, (*meter.Meter)(nil).Queue("mail"))

	made := make([]*meter.Queue, 8)
	var wg sync.WaitGroup
	for i := range made {
		wg.Go(func() { made[i] = m.Queue("new") })
	}
	wg.Wait()
	for _, q := range made {
		require.Same(t, made[0], q)
	}
}

// The four conventional metrics keep their names and units, every instrument
// says what it is, and the table in doc.go is complete.
func TestInstrumentsAreDescribed(t *testing.T) {
	rec := newRecorder()
	meter.New(rec.options())
	for _, c := range []interface{ Name() string }{
		messagingconv.ClientSentMessages{}, messagingconv.ClientConsumedMessages{},
		messagingconv.ClientOperationDuration{}, messagingconv.ProcessDuration{},
	} {
		require.Contains(t, rec.made, c.Name())
		require.Equal(t, c.(interface{ Unit() string }).Unit(), rec.made[c.Name()].unit)
	}

	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	table := map[string]string{} // name to unit
	for line := range strings.Lines(string(doc)) {
		f := strings.Fields(line)
		if strings.HasPrefix(line, "//\temq.") || strings.HasPrefix(line, "//\tmessaging.") {
			table[f[1]] = f[3]
		}
	}
	units := map[string]string{}
	for name, i := range rec.made {
		units[name] = i.unit
		require.NotEmpty(t, i.description, name)
		require.Equal(t, i.unit == "s", i.buckets != nil, name)
	}
	require.Equal(t, units, table, "the table in doc.go")
	require.Equal(t, []float64{0.01, 0.1, 1, 5, 15, 60, 300, 3600}, rec.made["emq.rate_limit.delay"].buckets)
}

func TestEventOnTheEdge(t *testing.T) {
	rec := newRecorder()
	m := meter.New(rec.options())
	q := m.Queue("mail")

	q.RateLimitHit(1500 * time.Millisecond)
	q.RateLimitHit(time.Second)
	require.Len(t, rec.events, 1, "still refusing")
	q.Admitted(0)
	q.RateLimitHit(time.Second)
	require.Len(t, rec.events, 1, "nothing was granted in between")
	q.Admitted(1)
	q.RateLimitHit(time.Second)
	require.Len(t, rec.events, 2, "a second edge")
	q.Unlimited(1)
	m.RateLimitHit("mail", time.Second)
	require.Len(t, rec.events, 3, "the Meter and the Queue share the edge")
	m.RateLimitHit("chat", time.Second)
	require.Len(t, rec.events, 4, "each queue has its own edge")

	e := rec.events[0]
	require.Equal(t, "rate_limit.hit", e.EventName())
	require.Equal(t, log.SeverityInfo, e.Severity())
	require.False(t, e.Timestamp().IsZero())
	var list []attribute.KeyValue
	e.WalkAttributes(func(kv attribute.KeyValue) bool {
		list = append(list, kv)
		return true
	})
	require.ElementsMatch(t, []attribute.KeyValue{
		attribute.String("messaging.system", "emq"),
		attribute.String("messaging.destination.name", "mail"),
		attribute.Float64("emq.rate_limit.delay", 1.5),
	}, list)
}

func TestEveryHitIsAnEventWhenAsked(t *testing.T) {
	rec := newRecorder()
	o := rec.options()
	o.EveryHit = true
	m := meter.New(o)
	for range 3 {
		m.RateLimitHit("mail", time.Second)
	}
	require.Len(t, rec.events, 3)
}

func TestHookIsCalledForEverySendBack(t *testing.T) {
	var calls []string
	m := meter.New(meter.Options{OnRateLimitHit: func(queue string, delay time.Duration) {
		calls = append(calls, fmt.Sprint(queue, " ", delay))
	}})
	m.RateLimitHit("mail", time.Second)
	m.Queue("mail").RateLimitHit(2 * time.Second)
	require.Equal(t, []string{"mail 1s", "mail 2s"}, calls)
}

func TestRefusedInstrumentsDoNothing(t *testing.T) {
	rec := newRecorder()
	rec.refuse = errors.New("no instruments today")
	var handled []error
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { handled = append(handled, err) }))

	m := meter.New(rec.options())
	require.Len(t, handled, len(rec.made))
	require.ErrorIs(t, handled[0], rec.refuse)
	for _, c := range calls(m) {
		c.call()
	}
	require.Empty(t, rec.take())
}

// It runs in a process of its own, because the global providers can be set once.
func TestGlobalProvidersMayBeSetAfterNew(t *testing.T) {
	const child = "EMQ_METER_TEST_CHILD"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestGlobalProvidersMayBeSetAfterNew$")
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	m := meter.New(meter.Options{Traces: true})
	q := m.Queue("mail")
	rec := newRecorder()
	otel.SetMeterProvider(meterProvider{rec: rec})
	otel.SetTracerProvider(tracerProvider{rec: rec})
	otel.SetLoggerProvider(loggerProvider{rec: rec})

	q.RateLimitHit(time.Second)
	_, end := q.StartEnqueue(t.Context(), 1)
	end(nil)
	require.Len(t, rec.take(), 3)
	require.Len(t, rec.events, 1)
	require.Len(t, rec.spans, 1)
}
