package limiter

// tokenBucket gives a token for each unit; its level is what is missing.
type tokenBucket struct{ level }

func readTokenBucket(m *Model, now int64, l Limit) (judged, error) {
	level, err := readLevel(m, now, l, true) // a smaller burst leaves the bucket empty, never in debt
	return &tokenBucket{level}, err
}

func (b *tokenBucket) delay() int64 { return 0 }
