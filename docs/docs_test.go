// Package docs_test holds protocol.md to the scripts and the Go code that it describes.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/lua"
)

func TestMain(m *testing.M) { os.Exit(emqtest.Run(m)) }

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	return string(text)
}

// all are the first groups of pattern's matches in text, in order, each once.
func all(pattern, text string) (found []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		if !slices.Contains(found, m[1]) {
			found = append(found, m[1])
		}
	}
	return found
}

// part is the text of protocol.md from a heading to the next one of its level or above.
func part(t *testing.T, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(read(t, "protocol.md"), "\n"+heading+"\n")
	require.True(t, found, "protocol.md has no heading %q", heading)
	level := strings.IndexByte(heading, ' ')
	text, _, _ = strings.Cut(text, "\n"+heading[:level]+" ")
	for ; level > 2; level-- {
		text, _, _ = strings.Cut(text, "\n"+heading[:level-1]+" ")
	}
	return text
}

// cells are the words in backquotes in the first cells of a table, which begins with the cell head.
func cells(t *testing.T, head, text string) (words []string) {
	t.Helper()
	_, table, found := strings.Cut(text, "| "+head+" |")
	if !found {
		return nil
	}
	table, _, _ = strings.Cut(table, "\n\n")
	for _, row := range strings.Split(table, "\n")[2:] {
		first := strings.SplitN(row, " | ", 2)[0]
		words = append(words, all("`([^`]+)`", first)...)
	}
	return words
}

type key struct{ suffix, kind, name string }

func keys(pattern, text string) (found []key) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, key{m[1], m[2], m[3]})
	}
	return found
}

func documentedKeys(t *testing.T) []key {
	return keys("(?m)^\\| `([a-z0-9:]+)` \\| (\\w+) \\| `(\\w+)` \\|", part(t, "## Keys"))
}

// scripts is the text of all scripts with their includes.
func scripts() (text string) {
	for _, name := range lua.Names() {
		text += lua.Source(name)
	}
	return text
}

func TestKeys(t *testing.T) {
	t.Parallel()
	source := read(t, "..", "lua", "keys.go")
	var declared []key
	for _, k := range keys(`"(\w+)":\s+\{"([\w:]+)", "(\w+)"\}`, source) {
		declared = append(declared, key{suffix: k.kind, kind: k.name, name: k.suffix}) // in the order of the table
	}
	require.NotEmpty(t, declared)
	assert.ElementsMatch(t, declared, documentedKeys(t))

	text := part(t, "## Keys")
	for _, built := range all(`(?:prefix|k\.prefix) ?(?:\.\.|\+) ['"](\w+:)['"]`, scripts()+source) {
		if built != "wait:" {
			assert.Contains(t, text, "| `"+built+"`")
		}
	}
	assert.Contains(t, text, "`"+lua.Queues+"`")
	assert.ElementsMatch(t, all(`'([a-z_]+)'`, strings.Join(all(`'H\w+', meta, ([^)]*)\)`, scripts()), " ")),
		cells(t, "field", part(t, "### `meta`")))
	assert.ElementsMatch(t, all(`'([a-z][a-z_]*)'`, strings.Join(all(`(?:keep\(|'H\w+', state, )([^)]*)\)`, scripts()), " ")),
		cells(t, "field", part(t, "### `state`")))
}

func TestRecord(t *testing.T) {
	t.Parallel()
	text := part(t, "## The job record")
	include := read(t, "..", "lua", "include", "record.lua")
	bytes := all(`(?m)^-- +(?:byte +)?(\d+(?:-\d*)?)  +\w`, include)
	assert.Equal(t, bytes, all(`(?m)^\| (\d+(?:-\d*)?) \|`, text))
	head := all(`local HEAD = (\d+)`, include)
	require.Len(t, head, 1)
	assert.Contains(t, bytes, head[0], "the last byte of the head")
	assert.Equal(t, all(`tag\w+ += '(\w)'`, read(t, "..", "lua", "record.go")), cells(t, "tag", text))

	example := all("```\n(.*)\n```", text)
	require.Len(t, example, 1)
	record, err := lua.ParseRecord(example[0])
	require.NoError(t, err)
	assert.Equal(t, lua.Header{Name: "mail"}, record.Header)
	assert.Equal(t, "hello", string(record.Payload))
	assert.Equal(t, 2, record.Priority)
	assert.EqualValues(t, 2<<50+1, record.Place())
	assert.Equal(t, 2027, record.Enqueued.UTC().Year())
	assert.Zero(t, record.Attempts+record.Deferrals+record.Reclaims)
}

func TestScripts(t *testing.T) {
	t.Parallel()
	sections := all("(?m)^### `(\\w+)`$", part(t, "## Scripts"))
	assert.ElementsMatch(t, lua.Names(), sections)
	for _, name := range sections {
		source, text := lua.Source(name), part(t, "### `"+name+"`")
		flags, _, _ := strings.Cut(source, "\n")
		assert.Contains(t, text, "`"+flags+"`", name)
		assert.Equal(t, all(`(?m)^local (\w+) += (?:tonumber\()?KEYS\[`, source), keysOf(t, name), "keys of %s", name)

		var arguments []string
		for i, argument := range all(`(?m)^local (\w+) += (?:tonumber\()?ARGV\[`, source) {
			arguments = append(arguments, "| "+strconv.Itoa(i+1)+" | `"+argument+"` |")
		}
		for _, first := range all(`(?m)^local rest += (\d+)`, source) {
			arguments = append(arguments, "| "+first+"… | `rest` |")
		}
		assert.Equal(t, arguments, all("(?m)^(\\| \\d+…? \\| `\\w+` \\|)", text), "arguments of %s", name)

		words := append(all(`return \{'(\w+)'`, source), all(`(?m)^\s*(?:local )?(?:word = |reply = \{)'(\w+)'`, source)...)
		slices.Sort(words)
		assert.ElementsMatch(t, slices.Compact(words), cells(t, "reply", text), "replies of %s", name)
	}
}

func keysOf(t *testing.T, script string) []string {
	t.Helper()
	line := all("(?m)^Keys: (.*)$", part(t, "### `"+script+"`"))
	require.Len(t, line, 1, script)
	return all("`(\\w+)`", line[0])
}

func TestAudit(t *testing.T) {
	t.Parallel()
	text := part(t, "## The audit stream")
	assert.ElementsMatch(t, all(`record_audit\('(\w+)'`, scripts()), cells(t, "op", text))
	calls := regexp.MustCompile(`(?s)record_audit\('(\w+)', (.*?)\)\n`).FindAllStringSubmatch(scripts(), -1)
	require.NotEmpty(t, calls)
	for _, c := range calls {
		row := regexp.MustCompile("(?m)^\\|[^|]*`" + c[1] + "`[^|]*\\|.*$").FindString(text)
		for _, field := range all(`'([a-z_]+)',`, c[2]) {
			assert.Contains(t, row, "`"+field+"`", "the row of %s", c[1])
		}
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	assert.ElementsMatch(t, all(`(?m)^\tReason\w+ +Reason = "(\w+)"`, read(t, "..", "queue", "inspect.go")),
		cells(t, "reason in `errors`", part(t, "## States")))
	assert.ElementsMatch(t, all(`(?m)^\t\w+ += "(\w+)" +//`, read(t, "..", "lua", "settle.go")), cells(t, "outcome", part(t, "### `settle`")))
	assert.ElementsMatch(t, lua.Names(), cells(t, "script", part(t, "### What may be sent again")))
	answers := cells(t, "answer", part(t, "### What may be sent again"))
	unavailable := all(`(?m)^var unavailable = \[\]string\{(.*)\}`, read(t, "..", "lua", "errors.go"))
	require.Len(t, unavailable, 1)
	assert.Subset(t, answers, all(`"(\w+)"`, unavailable[0]))
	text := part(t, "## States")
	for _, state := range all(`return '(\w+)'`, read(t, "..", "lua", "include", "where.lua")) {
		if state != "unknown" {
			assert.Contains(t, text, "\n| "+state+" |")
		}
	}
}

// A job's way by what protocol.md says alone: plain commands, keys from its tables, scripts put together by its rule.
func TestAnotherRuntime(t *testing.T) {
	t.Parallel()
	client, prefix := emqtest.Client(t), "emq:{"+emqtest.Queue(t)+"}:"
	do := func(args ...string) valkey.ValkeyResult {
		return client.Do(t.Context(), client.B().Arbitrary(args...).Build())
	}
	named := map[string]string{}
	for _, k := range documentedKeys(t) {
		named[k.name] = prefix + k.suffix
	}
	var records []string // more keys of the next call
	call := func(script string, args ...string) []valkey.ValkeyMessage {
		t.Helper()
		text, include := read(t, "..", "lua", script+".lua"), regexp.MustCompile(`(?m)^-- include (\S+)\n`)
		for include.MatchString(text) {
			text = include.ReplaceAllStringFunc(text, func(line string) string {
				return read(t, "..", "lua", "include", strings.TrimSpace(strings.TrimPrefix(line, "-- include ")))
			})
		}
		require.Equal(t, lua.Source(script), text)
		sha, err := do("SCRIPT", "LOAD", text).ToString()
		require.NoError(t, err)
		command := []string{"EVALSHA", sha, strconv.Itoa(len(keysOf(t, script)) + len(records))}
		for _, name := range keysOf(t, script) {
			command = append(command, named[name])
		}
		reply, err := do(append(append(command, records...), args...)...).ToArray()
		records = nil
		require.NoError(t, err)
		return reply
	}
	texts := func(reply []valkey.ValkeyMessage) (texts []string) {
		for _, m := range reply {
			s, err := m.ToString()
			if err != nil {
				n, err := m.AsInt64()
				require.NoError(t, err)
				s = strconv.FormatInt(n, 10)
			}
			texts = append(texts, s)
		}
		return texts
	}

	require.NoError(t, do("HSET", prefix+"meta", "max", "1", "duration", "60000").Error())
	require.Equal(t, []string{"enqueued", "3", "duplicate"}, slices.Delete(texts(call("enqueue", "", "",
		"a", "2", "", "n4:mail.hello", "b", "1", "", ".", "a", "2", "", ".")), 1, 2))
	claimed := texts(call("claim", "w", "nonce", "2", "30000", "3"))
	require.Equal(t, "claimed", claimed[0])
	token := claimed[2]
	require.Regexp(t, `^[0-9a-f]{12}-nonce$`, token)
	require.Equal(t, []string{"0", "30000", "0", "30000", "800", "60000", "1", "0", "0", "1", "1", "b"}, claimed[3:15], "one granted, the other sent back")
	require.Regexp(t, `^1[0-9a-f]{23}0{9}\.$`, claimed[15], "its record")
	require.Equal(t, []string{"a", "", "60000"}, claimed[16:])
	records = []string{prefix + "job:b"}
	require.Equal(t, []string{"settled", "dl"}, texts(call("settle", "p", "1", "30000", "1",
		"b|"+token, "complete", "a", token, "0", "", "")))
	found := texts(call("job", "a"))
	require.Equal(t, []string{"found", "delayed", "limit"}, []string{found[0], found[2], found[4]})
	require.True(t, strings.HasSuffix(found[5], "n4:mail.hello"))
	require.NoError(t, do("DEL", prefix+"limiter").Error())
	require.Equal(t, "claimed", texts(call("claim", "", "again", "1", "30000", "3"))[0], "the budget is back before its time")
	require.NoError(t, do("SET", prefix+"limiter", "9007199254740991", "PX", "90000").Error())
	call("enqueue", "4", "", "c", ".")
	stopped := texts(call("claim", "w", "third", "1", "30000", "3"))
	require.Equal(t, "limited", stopped[0])
	retry, err := strconv.Atoi(stopped[8])
	require.NoError(t, err)
	require.Greater(t, retry, 60000, "the manual stop keeps its time")

	// A limit by key and by cost, of which a job gives back what it did not need.
	require.NoError(t, do("DEL", prefix+"limiter", prefix+"meta").Error())
	set := texts(call("named", "set", "tpm", "10", "60000", "", "token_bucket", "tenant", "tokens", "", "why", "big one", "20", "", ""))
	require.Equal(t, []string{"set", ""}, slices.Delete(set, 1, 2))
	words, err := do("HGET", prefix+"limits", "tpm").ToString()
	require.NoError(t, err)
	require.Regexp(t, `^tpm token_bucket 10 60000 0 tenant tokens live 1 \d+ why$`, words)
	require.Equal(t, []string{"enqueued", "3", "heavy tpm tokens 21 20"}, slices.Delete(texts(call("enqueue", "", "",
		"x", "1", "", "k14:tenant=big onec9:tokens=20.", "y", "1", "", "k14:tenant=big onec8:tokens=5.",
		"z", "1", "", "k14:tenant=big onec9:tokens=21.")), 1, 2))
	granted := texts(call("claim", "", "fourth", "9", "30000", "3"))
	require.Equal(t, []string{"c", "y", "tpm:big%20one"}, []string{granted[16], granted[len(granted)-3], granted[len(granted)-2]})
	line, err := do("ZCARD", prefix+"line:tpm:big%20one").AsInt64()
	require.NoError(t, err)
	require.EqualValues(t, 1, line)
	require.Equal(t, []string{"settled", "d"}, texts(call("settle", "p", "2", "30000", "0", "complete", "x", granted[2], "0", "", "tokens=3")))
	require.Equal(t, "y", texts(call("claim", "", "fifth", "9", "30000", "3"))[14])

	// A closed key value.
	require.Equal(t, "set", texts(call("close", "close", "tenant", "big one", "+5000", "429"))[0])
	call("enqueue", "1", "", "v", "k14:tenant=big one.")
	shut := texts(call("claim", "", "sixth", "9", "30000", "3"))
	require.Equal(t, []string{"v", "=tenant:big%20one"}, shut[len(shut)-3:len(shut)-1])
}

// The README's program is one that compiles.
func TestReadmeProgram(t *testing.T) {
	t.Parallel()
	program := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(read(t, "..", "README.md"))
	require.Len(t, program, 2)
	compiled := strings.ReplaceAll(read(t, "..", "worker", "readme_test.go"), "\n\t", "\n")
	assert.Contains(t, compiled, program[1])
}

// The README's table of keys has every key.
func TestReadmeKeys(t *testing.T) {
	t.Parallel()
	readme := read(t, "..", "README.md")
	for _, suffix := range all(`"\w+":\s+\{"([\w:]+)",`, read(t, "..", "lua", "keys.go")) {
		if suffix == "wait:2" || suffix == "wait:3" { // between :1 and :4
			continue
		}
		last := suffix[strings.LastIndexByte(suffix, ':')+1:]
		assert.Regexp(t, "[`:]"+regexp.QuoteMeta(last)+"`", readme, suffix)
	}
}
