package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"frobnicate":                          `unknown command "frobnicate"; want one of demo, doctor, enqueue, job`,
		"limts get q":                         `unknown command "limts"; did you mean limits?`,
		"limits st q":                         `unknown command "limits st"; did you mean`,
		"limits":                              "limits: say what; want one of check, close, get, ls, reopen, reset, set, unset",
		"limits get":                          "limits get: 0 arguments given; want emqworker limits get QUEUE",
		"limits set q":                        "limits set: 1 arguments given",
		"limits set q 5":                      `"5"; want max/window as in 100/1m`,
		"limits set q -1/1s":                  "unknown shorthand flag",
		"limits set q 5/soon":                 "no length of time",
		"limits set b{d 5/1s":                 `queue name "b{d" has '{' at byte 1`,
		"run":                                 "run: -q is missing",
		"run -q q":                            "want one of --log, --http and --exec",
		"run -q q --log x":                    `unexpected argument "x"`,
		"run -q q --exec":                     "--exec is not followed by a program",
		"run -q q --exec /nonesuch":           "--exec: ",
		"run --exec true -q q":                "Flags come before --exec",
		"run -q q --log --for -1s":            "--for is -1s",
		"run -q q --log --grace -1s":          "--grace is -1s",
		"run -q q --log --backoff -1s":        "--backoff is -1s",
		"run -q q --log -c 1001":              "Concurrency is 1001",
		"run -q q --log --lease 1us":          "Lease is 1µs",
		"enqueue":                             "want emqworker enqueue QUEUE",
		"enqueue q a b":                       "3 arguments given",
		"enqueue q --frob":                    "unknown flag: --frob",
		"enqueue q --priority 5":              "priority 5; want 1 (first) to 4",
		"enqueue q --priority 0":              "--priority is 0; want 1 (first) to 4",
		"enqueue q --cost tokens=many":        `--cost is "tokens=many"; want name=value with a whole number`,
		"enqueue q --key tenant":              `--key is "tenant"; want name=value`,
		"enqueue q --key a=1 --key a=2":       "--key a is given twice",
		"enqueue q --at tomorrow":             `--at is "tomorrow"`,
		"enqueue q --id a:b":                  "bad name",
		"enqueue q --id a -":                  "--id is for one job",
		"enqueue q --delay 100000h":           "at most ten years",
		"stats a:b":                           "bad name",
		"job get":                             "want emqworker job get",
		"job get a:b":                         "bad name",
		"job get -q q q id":                   "unexpected",
		"job ls":                              "which queue?",
		"job ls q --state frob":               `--state is "frob"; want wait, active`,
		"job ls q --limit 0":                  "--limit of 1 or more",
		"job run q":                           "which job?",
		"job redrive q":                       "want one of: ids, --all, --reason",
		"job redrive q id --all":              "want one of: ids, --all, --reason",
		"job redrive q --reason frob":         `--reason is "frob"; want attempts, lost, dead_lettered, missing`,
		"job rm q":                            "want one of: ids, --all-dead, --reason",
		"queue drain q":                       "say --confirm=q",
		"queue drain q --confirm=other":       "say --confirm=q",
		"demo --workers 0":                    "--workers is 0; want 1 to 64",
		"demo --window 1us":                   "--window is 1µs",
		"demo --url unix:///x --emulator":     "want one of --url and --emulator",
		"stats --url http://host":             "--url is no address of a server",
		"stats --url nonsense":                "--url is no address of a server",
		"stats --password-file /nonesuch":     "--password-file: ",
		"stats --url valkeys://h?skip_verify": "skip_verify",
	} {
		a := emq(t, strings.Fields(line)...)
		assert.Equal(t, exitUsage, a.code, line)
		assert.Empty(t, a.stdout, line)
		if want != "unexpected" {
			assert.Contains(t, a.stderr, want, line)
		}
		assert.True(t, strings.HasPrefix(a.stderr, "emqworker: "), "%s: %s", line, a.stderr)
		assert.Equal(t, 1, strings.Count(a.stderr, "\n"), "%s: %s", line, a.stderr)
	}
}

func TestHelpShowsExamplesFirst(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"-h", "run -h", "run -q x --log -h", "limits set -h", "enqueue x y --help", "job ls -h", "help demo"} {
		a := emq(t, strings.Fields(line)...)
		assert.Equal(t, 0, a.code, line)
		assert.Empty(t, a.stderr, line)
		examples, usage := strings.Index(a.stdout, "Examples:"), strings.Index(a.stdout, "Usage:")
		assert.True(t, 0 < examples && examples < usage, "%s: %s", line, a.stdout)
		assert.NotContains(t, a.stdout, "demo-worker", line)
	}
	assert.Equal(t, emq(t, "-h").stdout, emq(t).stdout)
}

func TestVersion(t *testing.T) {
	t.Parallel()
	assert.True(t, strings.HasPrefix(ok(t, "version"), "emqworker "))
	v := decode[map[string]string](t, ok(t, "version", "--json"))
	require.Contains(t, v, "version")
	assert.Contains(t, v["go"], "go1")
}
