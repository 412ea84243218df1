package emqtest

import (
	"crypto/rand"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/valkey-io/valkey-go"
	"go.uber.org/goleak"

	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/lua"
)

// shared is what the tests of this binary have in common.
var shared struct {
	sync.Mutex
	url    string
	client valkey.Client
	server *valkeyd.Server // nil: somebody else's server
	err    error           // of the one attempt to start
}

// Client returns a client of the server that all tests of this binary share.
// The client is shared too: do not close it. The test fails if there is no
// server to be had.
func Client(t testing.TB) valkey.Client {
	t.Helper()
	open(t)
	return shared.client
}

// Start returns what [Client] and [URL] do, for TestMain and examples, which
// have no testing.TB. It panics if there is no server to be had.
func Start() (client valkey.Client, url string) {
	useScripts()
	if err := ready(); err != nil {
		panic(fmt.Errorf("emqtest: %w", err))
	}
	return shared.client, shared.url
}

// URL returns the address of the server that [Client] talks to, in the form
// that [valkey.ParseURL] reads, for tests that make clients of their own. The
// test fails if there is no server to be had.
func URL(t testing.TB) string {
	t.Helper()
	open(t)
	return shared.url
}

// open is ready, or fails the test.
func open(t testing.TB) {
	t.Helper()
	if err := ready(); err != nil {
		t.Fatalf("emqtest: %v", err)
	}
}

// ready starts the server and the client where that was not done before.
func ready() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.client == nil && shared.err == nil {
		shared.err = start()
	}
	return shared.err
}

func start() error {
	url := os.Getenv("EMQ_TEST_VALKEY")
	if url == "" {
		server, err := valkeyd.Start(valkeyd.Options{})
		if err != nil {
			return err
		}
		shared.server, url = server, server.URL()
	}
	options, err := valkey.ParseURL(url)
	if err != nil {
		return fmt.Errorf("EMQ_TEST_VALKEY=%q is no URL of a server such as valkey://127.0.0.1:6379: %w", url, err)
	}
	client, err := valkey.NewClient(options)
	if err != nil {
		return fmt.Errorf("no connection to %s: %w", url, err)
	}
	shared.url, shared.client = url, client
	return nil
}

// useScripts runs the tests on the scripts in a directory in place of those built in, when the environment names one: internal/mutate does,
// to see whether the tests notice what it changed.
func useScripts() {
	if dir := os.Getenv("EMQ_TEST_SCRIPTS"); dir != "" {
		if err := lua.Use(os.DirFS(dir)); err != nil {
			panic(err)
		}
	}
}

// stop undoes start.
func stop() {
	shared.Lock()
	defer shared.Unlock()
	if shared.client != nil {
		shared.client.Close()
	}
	if shared.server != nil {
		shared.server.Stop()
	}
	shared.url, shared.client, shared.server, shared.err = "", nil, nil, nil
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// Queue returns a queue name that no other call returns, in this binary or in
// another: the test's name, cut to 40 bytes, and a random end.
func Queue(t testing.TB) string {
	name := strings.Trim(notInName.ReplaceAllString(t.Name(), "-"), "-")
	return name[:min(len(name), 40)] + "-" + strings.ToLower(rand.Text()[:12])
}

// Run runs the tests of a package, stops the server, and then fails if a
// goroutine that the tests started still runs; it names those on standard
// error. It is for TestMain, which passes its result to [os.Exit].
func Run(m *testing.M) int {
	useScripts()
	code := m.Run()
	stop()
	if code != 0 {
		return code
	}
	// A cluster client that is closed may look at its slots once more, a second later.
	lookAgain := goleak.IgnoreAnyFunction("github.com/valkey-io/valkey-go.(*call).DelayDo.func1")
	if err := goleak.Find(lookAgain); err != nil {
		fmt.Fprintln(os.Stderr, "emqtest: the tests passed but left goroutines behind:", err)
		return 1
	}
	return 0
}
