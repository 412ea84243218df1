// Package emqtest helps to test code that enqueues or handles jobs, on a real
// Valkey server.
//
// # Where the server comes from
//
// The first test of a test binary that asks for a [Client] starts a private
// valkey-server: on a unix socket, with nothing kept on disk, and with nobody
// else on it. All tests of the binary share it, and it ends with the binary.
// Where no valkey-server is installed the test fails and says how to install
// one. Two environment variables change that:
//
//   - EMQ_TEST_VALKEY is the URL of a server that already runs, such as
//     valkey://127.0.0.1:6379; it is used instead, and left running.
//   - EMQ_TEST_VALKEY_SERVER is the program to start instead of the
//     valkey-server on PATH.
//
// # Tests that run side by side
//
// Tests are kept apart by queue, not by server: each takes a [Queue] name of
// its own, never flushes anything, and so may call t.Parallel:
//
//	func TestOrderIsEnqueued(t *testing.T) {
//		t.Parallel()
//		client, name := emqtest.Client(t), emqtest.Queue(t)
//		…
//	}
//
// Package [github.com/echomq/emq/emqtest/jobtest] lists the jobs that were
// enqueued and runs them.
//
// # The end of a test binary
//
// A package that wants its tests to leave no goroutine behind says so once:
//
//	func TestMain(m *testing.M) { os.Exit(emqtest.Run(m)) }
//
// Without it the server still ends with the binary: on Linux however the
// binary dies, elsewhere as far as the system allows.
package emqtest
