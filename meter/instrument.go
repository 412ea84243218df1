package meter

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// Bucket boundaries in seconds: for calls and handlers those of the semantic
// conventions, for waiting those that reach from a pick-up to an hour.
var (
	callBuckets  = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
	delayBuckets = []float64{0.01, 0.1, 1, 5, 15, 60, 300, 3600}
	waitBuckets  = []float64{0.001, 0.01, 0.1, 1, 5, 15, 60, 300, 3600}
)

// instruments are made once per Meter and shared by its queues.
type instruments struct {
	sent, consumed, hits, decisions, empty, lost, reclaimed metric.Int64Counter
	operation, process, delay, queueTime                    metric.Float64Histogram
	busy                                                    metric.Int64UpDownCounter
}

func newInstruments(m metric.Meter) instruments {
	return instruments{
		sent: counter(m, "messaging.client.sent.messages", "{message}",
			"Jobs that producers tried to enqueue."),
		consumed: counter(m, "messaging.client.consumed.messages", "{message}",
			"Jobs granted to workers."),
		operation: histogram(m, "messaging.client.operation.duration", callBuckets,
			"Duration of one enqueue, claim or settle call."),
		process: histogram(m, "messaging.process.duration", callBuckets,
			"Duration of one run of a job's handler."),
		hits: counter(m, "emq.rate_limit.hit", "{job}",
			"Jobs sent back over budget."),
		delay: histogram(m, "emq.rate_limit.delay", delayBuckets,
			"Time for which a job was sent back over budget."),
		decisions: counter(m, "emq.rate_limit.decisions", "{decision}",
			"Jobs that a claim admitted, deferred, or granted with no limit set."),
		queueTime: histogram(m, "emq.job.queue_time", waitBuckets,
			"Time from when a job was due to when it was claimed."),
		empty: counter(m, "emq.claim.empty", "{claim}",
			"Claims that granted no job."),
		lost: counter(m, "emq.lease.lost", "{lease}",
			"Leases that a worker lost while it held the job."),
		reclaimed: counter(m, "emq.lease.reclaimed", "{lease}",
			"Expired leases whose job went back to wait."),
		busy: upDownCounter(m, "emq.worker.busy", "{job}",
			"Jobs that handlers are running now."),
	}
}

func counter(m metric.Meter, name, unit, description string) metric.Int64Counter {
	c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	if err != nil {
		otel.Handle(err)
		return noop.Int64Counter{}
	}
	return c
}

func upDownCounter(m metric.Meter, name, unit, description string) metric.Int64UpDownCounter {
	c, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	if err != nil {
		otel.Handle(err)
		return noop.Int64UpDownCounter{}
	}
	return c
}

func histogram(m metric.Meter, name string, buckets []float64, description string) metric.Float64Histogram {
	h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(buckets...))
	if err != nil {
		otel.Handle(err)
		return noop.Float64Histogram{}
	}
	return h
}
