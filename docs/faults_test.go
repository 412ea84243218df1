package docs_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inWords are the rows that nothing here can make; faults.md says what stands in their place.
var inWords = []string{"F19", "F50", "F51", "F67", "F68"}

// faults.md names the tests that there are, and each row has one.
func TestFaults(t *testing.T) {
	t.Parallel()
	text := read(t, "faults.md")
	out, err := exec.Command("grep", "-rhoE", "^func Test(F[0-9]{2})+[A-Za-z0-9]*", "--include=*_test.go", "..").Output()
	require.NoError(t, err)
	rows := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		name := strings.TrimSpace(strings.TrimPrefix(line, "func "))
		for _, row := range regexp.MustCompile(`F\d\d`).FindAllString(regexp.MustCompile(`^Test(F\d\d)+`).FindString(name), -1) {
			rows[row] = append(rows[row], name)
		}
	}
	listed := all(`(?m)^\| (F\d\d) \|`, text)
	assert.Len(t, listed, 93, "F01 to F94, without F69")
	for _, row := range listed {
		line := all(`(?m)^(\| `+row+` \|.*)$`, text)[0]
		assert.ElementsMatch(t, rows[row], all("`(Test\\w+)`", line), row)
		for _, word := range inWords {
			if row == word {
				assert.Empty(t, rows[row], row)
			}
		}
		cells := strings.Split(strings.Trim(line, "| "), "|")
		require.Len(t, cells, 4, row)
		for _, cell := range cells {
			assert.NotEmpty(t, strings.TrimSpace(cell), row)
		}
		if len(rows[row]) == 0 {
			assert.Contains(t, inWords, row)
		}
	}
}

// What servers.md calls tested is what the targets start.
func TestServersThatAreTested(t *testing.T) {
	t.Parallel()
	text := read(t, "servers.md")
	assert.Contains(t, text, "| Valkey 8.0 | every test runs on it")
	assert.Contains(t, text, "| Redis 7.0 | `make servers`")
	makefile := read(t, "..", "Makefile")
	assert.Contains(t, makefile, "EMQ_TEST_VALKEY_SERVER=$$(command -v redis-server) go test")
	assert.Contains(t, read(t, "..", ".ci", "install-valkey"), "valkey-server")
}

// api.md has every route of the JSON API, and its fields are fields of the answers.
func TestAPI(t *testing.T) {
	t.Parallel()
	text := read(t, "api.md")
	source := read(t, "..", "internal", "dashboard", "api.go") + read(t, "..", "internal", "dashboard", "jobs.go")
	for _, path := range all(`get\("([^"]+)"`, source) {
		assert.Contains(t, text, "| `/v1/"+path+"` |")
	}
	fields := all(`"([a-z_]+)(?:,omitempty)?"[`+"`"+`:]`, source)
	for _, field := range all("`([a-z]+_[a-z_]+)`", text) {
		assert.Contains(t, fields, field)
	}
}
