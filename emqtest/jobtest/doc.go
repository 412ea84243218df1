// Package jobtest looks at the jobs that the code under test enqueued, and
// runs them by the handler under test, on the server of package emqtest.
//
// It is for tests of programs that use the packages queue and worker:
//
//   - [Jobs] lists what was enqueued.
//   - [Work] runs what can run, and returns every run with its error.
//
// Handlers run as in production: in a worker, by the real scripts, under the
// queue's limit and with its delays. Only failed jobs come back soon, so that a
// test sees every attempt without waiting.
//
// Handlers run in goroutines of their own: they may call t.Error, not t.Fatal.
package jobtest
