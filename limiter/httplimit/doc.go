// Package httplimit tells HTTP clients what a limiter decided, and denies their requests.
//
// [New] makes a middleware:
//
//	limit, err := httplimit.New(l, httplimit.Options{
//		Limit: limiter.PerMinute(100),
//		Key:   func(r *http.Request) string { return "user:" + userOf(r) },
//	})
//	http.Handle("/", limit(handler))
//
// A request over the limit is answered by 429 with Retry-After. [Set] writes the fields alone, for a handler that asks its
// limiter itself, also about several buckets.
//
// # Fields
//
// All times are whole seconds, rounded up, so that a client which obeys them is not too early by part of one. A denied request
// is never told 0; one that can never be granted is told no time. A request that nothing limits gets no fields, and one that
// the store did not decide about no more than Retry-After.
//
//	Draft11  RateLimit-Policy: "default";q=100;w=60
//	         RateLimit: "default";r=50;t=30
//	Draft12  RateLimit-Policy: "default";q=100;w=60
//	         RateLimit: "default";a=50;w=30
//	Legacy   X-RateLimit-Limit: 100
//	         X-RateLimit-Remaining: 50
//	         X-RateLimit-Reset: 30
//
// The drafts are those of "RateLimit header fields for HTTP" by the IETF's HTTPAPI group, which is no standard yet. In their
// RateLimit-Policy q is Max and w its Window, left out when that is no whole number of seconds. In RateLimit r (a) is
// what remains, and t (w) for how long no more than that should be used: until the same request is granted if it was denied, else
// until all of the limit is there again. Legacy's Reset is how many seconds that takes.
package httplimit
