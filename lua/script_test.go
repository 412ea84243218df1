package lua_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/lua"
)

type twoArgs struct {
	Max  int64  `lua:"max"`
	Name string `lua:"name"`
}

const probeText = `#!lua
local meta      = KEYS[1]
local state     = KEYS[2]
local max       = tonumber(ARGV[1])
local name      = ARGV[2]
local rest      = 3
-- include num.lua
if max < 0 then return {'refused', name} end
return {'done', meta, state, text(max), name, ARGV[rest] or '-'}
`

func TestBinderPassesKeysAndArgumentsByName(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	probe := lua.BindProbe[twoArgs](probeText, "done", "refused")
	word, values, err := probe.Run(t.Context(), q.client, q.keys, twoArgs{7, "seven"}, "more")
	require.NoError(t, err)
	assert.Equal(t, "done", word)
	assert.Equal(t, []string{q.keys.Meta(), q.key("state"), "7", "seven", "more"}, values)

	type otherOrder struct {
		Name string `lua:"name"`
		Max  int64  `lua:"max"`
	}
	word, values, err = lua.BindProbe[otherOrder](probeText, "done", "refused").Run(t.Context(), q.client, q.keys, otherOrder{"minus", -1})
	require.NoError(t, err)
	assert.Equal(t, "refused", word)
	assert.Equal(t, []string{"minus"}, values)
}

// The binder finds each way in which a script and its Go twin can differ.
func TestBinderPanicsOnAMismatch(t *testing.T) {
	t.Parallel()
	edit := func(old, new string) string {
		require.Contains(t, probeText, old)
		return strings.Replace(probeText, old, new, 1)
	}
	type other struct {
		Max   int64  `lua:"max"`
		Title string `lua:"title"`
	}
	type more struct {
		Max  int64  `lua:"max"`
		Name string `lua:"name"`
		Size int64  `lua:"size"`
	}
	done, refused := "done", "refused"
	for says, bind := range map[string]func(){
		"declares state as KEYS[3], want [2]":              func() { lua.BindProbe[twoArgs](edit("KEYS[2]", "KEYS[3]"), done, refused) },
		"declares state as KEYS[1], want [2]":              func() { lua.BindProbe[twoArgs](edit("KEYS[2]", "KEYS[1]"), done, refused) },
		"declares name as ARGV[1], want [2]":               func() { lua.BindProbe[twoArgs](edit("ARGV[2]", "ARGV[1]"), done, refused) },
		"declares the unknown key state2":                  func() { lua.BindProbe[twoArgs](edit("local state ", "local state2 "), done, refused) },
		"says that the rest begins at ARGV[2], want [3]":   func() { lua.BindProbe[twoArgs](edit("= 3", "= 2"), done, refused) },
		"declares the argument name, its Go type has no":   func() { lua.BindProbe[other](probeText, done, refused) },
		"[max name], its Go type has 3 fields":             func() { lua.BindProbe[more](probeText, done, refused) },
		"[max name], its Go type has 0 fields":             func() { lua.BindProbe[struct{}](probeText, done, refused) },
		"answers [done refused], its Go twin knows [done]": func() { lua.BindProbe[twoArgs](probeText, done) },
		"knows [done other refused]":                       func() { lua.BindProbe[twoArgs](probeText, done, refused, "other") },
		"answers [done other], its Go":                     func() { lua.BindProbe[twoArgs](edit("'refused'", "'other'"), done, refused) },
		"open include/none.lua":                            func() { lua.BindProbe[twoArgs](edit("num.lua", "none.lua"), done, refused) },
		"answers [done found refused], its Go":             func() { lua.BindProbe[twoArgs](probeText+"word = 'found'\n", done, refused) },
	} {
		func() {
			defer func() { assert.Contains(t, recover(), says) }()
			bind()
			t.Errorf("no panic: %s", says)
		}()
	}
}

func TestUnknownAnswersAreErrors(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for answer, says := range map[string]string{
		"{KEYS[1] or 'strange', 1}": `answered "strange", which this version does not know; want one of [known]`,
		"{}":                        "answered nothing",
		"{1}":                       "which this version does not know",
		"7":                         "probe",
	} {
		probe := lua.BindProbe[struct{}]("#!lua\nif true then return "+answer+" end\nreturn {'known'}\n", "known")
		_, _, err := probe.Run(t.Context(), q.client, q.keys, struct{}{})
		assert.ErrorContains(t, err, says, answer)
	}
}

func TestErrorsNameTheFileAndLine(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for body, says := range map[string]string{
		"local x = nothing":          "emq: probe: probe.lua:5: Script attempted to access nonexistent global variable 'nothing'",
		"counters.read('x', '')":     "emq: probe: " + lua.LineOf("claim", "tonumber(string.sub(head, field") + ": attempt to index",
		"call('PEXPIRE', meta, 'x')": "value is not an integer",
		"text('x')":                  "emq: probe: " + lua.LineOf("claim", "string.format('%.0f', n)") + ": bad argument",
	} {
		source := "#!lua\nlocal meta = KEYS[1]\n-- include num.lua\n-- include record.lua\n" + body + "\nif false then return {'done'} end\n"
		_, _, err := lua.BindProbe[struct{}](source, "done").Run(t.Context(), q.client, q.keys, struct{}{})
		require.ErrorContains(t, err, says)
		assert.NotContains(t, err.Error(), ": user_script:")
		var answer *valkey.ValkeyError
		assert.ErrorAs(t, err, &answer)
	}
	_, err := lua.Enqueue(t.Context(), q.client, q.keys, []lua.NewJob{{ID: "a", Priority: 9, Body: "."}})
	assert.ErrorContains(t, err, "emq: enqueue: "+lua.LineOf("enqueue", "priority is not 1 to 4")+": ")
	assert.Contains(t, lua.LineOf("enqueue", "priority is not 1 to 4"), "enqueue.lua:")
	assert.Contains(t, lua.LineOf("claim", "tonumber(string.sub(head, field"), "include/record.lua:")
}

// flags is what each script says of itself in its first line.
var flags = map[string]string{
	"enqueue": "#!lua",
	"limit":   "#!lua flags=allow-oom", "pause": "#!lua flags=allow-oom", "run": "#!lua flags=allow-oom",
	"redrive": "#!lua flags=allow-oom", "claim": "#!lua flags=allow-oom", "settle": "#!lua flags=allow-oom", "extend": "#!lua flags=allow-oom",
	"remove": "#!lua flags=allow-oom", "drain": "#!lua flags=allow-oom", "take": "#!lua flags=allow-oom", "takeall": "#!lua flags=allow-oom",
	"budget": "#!lua flags=no-writes", "counts": "#!lua flags=no-writes", "job": "#!lua flags=no-writes",
	"named": "#!lua flags=allow-oom", "close": "#!lua flags=allow-oom", "budgets": "#!lua flags=no-writes", "explain": "#!lua flags=no-writes",
	"workers": "#!lua flags=no-writes", "mend": "#!lua flags=allow-oom",
	"preflight": "#!lua flags=no-writes", "list": "#!lua flags=no-writes", "look": "#!lua flags=allow-oom",
}

func TestF44Scripts(t *testing.T) {
	t.Parallel()
	names := lua.Names()
	assert.Len(t, names, len(flags))
	load := regexp.MustCompile(`\b(loadstring|load|dofile|loadfile|require|EVAL\w*|SCRIPT)\b`)
	for _, name := range names {
		source := lua.Source(name)
		lines := strings.Split(source, "\n")
		assert.Equal(t, flags[name], lines[0], name)
		assert.True(t, strings.HasPrefix(lines[1], "-- "+name+" "), "%s.lua should begin by saying what %s does", name, name)
		assert.NotContains(t, source, "-- include ", name)
		assert.Contains(t, source, "local function whole(s)", name)
		assert.NotRegexp(t, load, source, name)
		assert.Equal(t, 1, strings.Count(source, "call('TIME')"), "%s has one clock", name)
		assert.NotEmpty(t, lua.Declared(name), name)
	}
	assert.Empty(t, lua.Source("none"))
	assert.Empty(t, lua.Source("include/num"))
}

// Script texts are the embedded files and nothing else: values reach them as KEYS and ARGV only.
func TestScriptTextIsNeverBuilt(t *testing.T) {
	t.Parallel()
	makers := map[string]string{} // the argument by position
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				assert.NotRegexp(t, `^(Eval|Fcall|ScriptLoad|FunctionLoad)`, n.Sel.Name, "%s", set.Position(n.Pos()))
			case *ast.BasicLit:
				assert.NotContains(t, n.Value, "redis.call", "%s", set.Position(n.Pos()))
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && strings.HasPrefix(f.Sel.Name, "NewLuaScript") {
					id, _ := n.Args[0].(*ast.Ident)
					require.NotNil(t, id, "%s: the text is built there", set.Position(n.Pos()))
					makers[filepath.Base(path)+" "+f.Sel.Name] = id.Name
				}
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"script.go NewLuaScript": "text", "script.go NewLuaScriptReadOnly": "text"}, makers)
}
