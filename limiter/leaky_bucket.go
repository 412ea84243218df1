package limiter

// leakyBucket is a queue that runs out evenly; its level is what has not left.
type leakyBucket struct{ level }

func readLeakyBucket(m *Model, now int64, l Limit) (judged, error) {
	level, err := readLevel(m, now, l, false)
	return &leakyBucket{level}, err
}

// delay is until all units before it have left.
func (b *leakyBucket) delay() int64 { return b.resetIn() }
