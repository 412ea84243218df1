package worker

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/emqtest"
)

// BenchmarkSlots takes all slots of a worker and gives them back, as a claim that finds nothing does.
func BenchmarkSlots(b *testing.B) {
	b.ReportAllocs()
	w, err := New(emqtest.Client(b), emqtest.Queue(b), func(context.Context, *Job) error { return nil }, Options{Concurrency: 100})
	require.NoError(b, err)
	duty := newDuty(w)
	defer duty.ears.stop()
	for b.Loop() {
		w.giveSlots(w.takeSlots(b.Context(), duty))
	}
	require.Len(b, w.slots, 100)
}
