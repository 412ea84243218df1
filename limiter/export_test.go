package limiter

import "time"

// TakeAllOfModels takes as takeall.lua does, without a server.
func TakeAllOfModels(now int64, upTo bool, models []*Model, limits []Limit, n int64) (Joint, error) {
	buckets := make([]judged, len(models))
	want, free := n, int64(-1)
	for i, limit := range limits {
		if limit.Max == 0 {
			continue
		}
		b, err := models[i].judge(now, limit)
		if err != nil {
			return Joint{}, err
		}
		if buckets[i] = b; upTo {
			want = min(want, b.free())
		}
	}
	want = max(want, min(1, n))
	var joint Joint
	for i, b := range buckets {
		d := Decision{Allowed: true, Limit: limits[i].Max, Remaining: -1, At: time.UnixMilli(now), Source: Store}
		if b != nil {
			if d.RetryAfter = Never; want <= limits[i].Capacity() {
				d.RetryAfter = milliseconds(askNow(b, limits[i], want))
			}
			d.Allowed = d.RetryAfter == 0
		}
		joint.RetryAfter = longer(joint.RetryAfter, d.RetryAfter)
		joint.Each = append(joint.Each, d)
	}
	if joint.Allowed = joint.RetryAfter == 0; joint.Allowed {
		joint.Granted = want
	}
	for i, b := range buckets {
		d := &joint.Each[i]
		d.Granted = joint.Granted
		if b == nil {
			continue
		}
		if joint.Granted > 0 {
			d.Delay = milliseconds(b.delay())
			b.spend(want)
		}
		d.Remaining, d.ResetAfter = b.free(), milliseconds(b.resetIn())
		if free < 0 || d.Remaining < free {
			free = d.Remaining
		}
		joint.ResetAfter, joint.Delay = max(joint.ResetAfter, d.ResetAfter), max(joint.Delay, d.Delay)
		if n > 0 && joint.RetryAfter != Never {
			b.write()
		}
	}
	joint.Remaining, joint.At, joint.Source = free, time.UnixMilli(now), Store
	return joint, nil
}
