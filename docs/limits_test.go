package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/emqtest"
)

// Every command line of limits.md does what it says on a real server, one after the other.
func TestLimitsCommands(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "emqworker")
	out, err := exec.Command("go", "build", "-o", binary, "github.com/echomq/emq/cmd/emqworker").CombinedOutput()
	require.NoError(t, err, string(out))
	_, url := emqtest.Start()
	queues := strings.NewReplacer(" mail", " "+emqtest.Queue(t), " llm", " "+emqtest.Queue(t), " chat", " "+emqtest.Queue(t))
	lines := 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(read(t, "limits.md"), -1) {
		for line := range strings.Lines(block[1]) {
			line = queues.Replace(strings.TrimSpace(line))
			command := exec.Command("sh", "-c", line)
			command.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "VALKEY_URL="+url)
			out, err := command.CombinedOutput()
			assert.NoError(t, err, "%s\n%s", line, out)
			lines++
		}
	}
	assert.Greater(t, lines, 20)
}

// What limits.md shows in Go stands in an example that compiles.
func TestLimitsGo(t *testing.T) {
	t.Parallel()
	text := read(t, "limits.md")
	examples := read(t, "..", "worker", "limits_example_test.go") + read(t, "..", "claim", "limits_example_test.go")
	assert.Contains(t, examples, `worker.RateLimited(retryAfter, worker.Key("model")`)
	for _, call := range all("`(?:job|worker|limiter|queue|metrics)\\.([A-Z]\\w+)", text) {
		assert.Contains(t, examples+read(t, "..", "queue", "limit.go")+read(t, "..", "queue", "manage.go")+read(t, "..", "metrics", "explain.go"), call)
	}
}
