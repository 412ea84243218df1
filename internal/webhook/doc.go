// Package webhook runs jobs by posting them to an HTTP endpoint: the handler of emqworker run --http.
//
// What the endpoint answers is the end of the job. An answer that says when to come back, such as 429 with Retry-After, closes the
// queue for the whole fleet until then and spends no attempt: that is what a limit at the claim point can do and one inside a
// worker cannot.
package webhook
