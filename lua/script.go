package lua

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"
)

//go:embed *.lua include/*.lua
var files embed.FS

// sources is where the scripts are read from: files, unless [Use] said otherwise.
var sources fs.FS = files

// bound are the scripts that Go calls, to be bound anew by [Use].
var bound []interface{ rebind() error }

// Use makes this process run the scripts of dir in place of its own, before it runs any. It is for those who plant a bug in a copy to
// see whether a checker finds it: emqworker verify --scripts. It fails when a script is missing or declares other keys or arguments
// than the one that it replaces.
func Use(dir fs.FS) error {
	sources = dir
	for _, s := range bound {
		if err := s.rebind(); err != nil {
			return err
		}
	}
	return nil
}

// Files are the scripts and their pieces as they are built in.
func Files() fs.FS { return files }

var (
	declaration = regexp.MustCompile(`(?m)^local (\w+)\s*= (?:tonumber\()?(KEYS|ARGV)\[(\d+)\]`)
	restArgs    = regexp.MustCompile(`(?m)^local rest\s*= (\d+)`)
	includeLine = regexp.MustCompile(`(?m)^-- include (\w+\.lua)$`)
	replyWord   = regexp.MustCompile(`return \{'(\w+)'`)
	assigned    = regexp.MustCompile(`(?m)^\s*(?:local )?(?:word = |reply = \{)'(\w+)'`)
	scriptLine  = regexp.MustCompile(`\buser_script:(\d+):`)
)

// script is one .lua file bound to Go by the names that its first lines declare.
type script[A any] struct {
	name   string
	lua    *valkey.Lua
	keys   []string // names of the declared keys, in order
	fields []int    // fields of A in the order of ARGV
	words  []string // the first words of its replies
	lines  []string // file:line of each line of the assembled text
}

// bind loads a script and checks that its declarations match the fields of A (tag `lua:"name"`), the known keys and the
// words that its caller understands. A mismatch panics, so the first test that runs finds it.
func bind[A any](name string, words ...string) *script[A] {
	s := bindText[A](name, file(name+".lua"), words...)
	bound = append(bound, s)
	return s
}

// rebind binds a script to the text that is there now.
func (s *script[A]) rebind() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	*s = *bindText[A](s.name, file(s.name+".lua"), s.words...)
	return nil
}

func bindText[A any](name, source string, words ...string) *script[A] {
	text, lines := assemble(name, source)
	s := &script[A]{name: name, words: words, lines: lines}

	var args []string
	for _, m := range declaration.FindAllStringSubmatch(source, -1) {
		list := &s.keys
		if m[2] == "ARGV" {
			list = &args
		}
		*list = append(*list, m[1])
		if m[3] != strconv.Itoa(len(*list)) {
			panic(fmt.Sprintf("lua: %s.lua declares %s as %s[%s], want [%d]", name, m[1], m[2], m[3], len(*list)))
		}
	}
	for _, key := range s.keys {
		if _, known := keyTypes[key]; !known && key != "bucket" {
			panic(fmt.Sprintf("lua: %s.lua declares the unknown key %s", name, key))
		}
	}
	if m := restArgs.FindStringSubmatch(source); m != nil {
		if m[1] != strconv.Itoa(len(args)+1) {
			panic(fmt.Sprintf("lua: %s.lua says that the rest begins at ARGV[%s], want [%d]", name, m[1], len(args)+1))
		}
	}
	shape := reflect.TypeFor[A]()
	if shape.NumField() != len(args) {
		panic(fmt.Sprintf("lua: %s.lua declares the arguments %v, its Go type has %d fields", name, args, shape.NumField()))
	}
	for _, arg := range args {
		i := slices.IndexFunc(reflect.VisibleFields(shape), func(f reflect.StructField) bool { return f.Tag.Get("lua") == arg })
		if i < 0 {
			panic(fmt.Sprintf("lua: %s.lua declares the argument %s, its Go type has no such field", name, arg))
		}
		s.fields = append(s.fields, i)
	}
	found := map[string]bool{}
	for _, m := range append(replyWord.FindAllStringSubmatch(text, -1), assigned.FindAllStringSubmatch(text, -1)...) {
		found[m[1]] = true
	}
	known := slices.Sorted(slices.Values(append([]string{}, words...)))
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, known) {
		panic(fmt.Sprintf("lua: %s.lua answers %v, its Go twin knows %v", name, got, known))
	}

	if strings.Contains(strings.SplitN(source, "\n", 2)[0], "no-writes") {
		s.lua = valkey.NewLuaScriptReadOnly(text)
	} else {
		s.lua = valkey.NewLuaScript(text)
	}
	return s
}

// Source is the text of a script with its includes, as the server runs it: "claim", "enqueue", … It is "" for a name that
// is no script.
func Source(name string) string {
	if !slices.Contains(Names(), name) {
		return ""
	}
	text, _ := assemble(name, file(name+".lua"))
	return text
}

// Sum is the SHA1 of a script's text, by which the server knows it.
func Sum(name string) string {
	sum := sha1.Sum([]byte(Source(name)))
	return hex.EncodeToString(sum[:])
}

// Names lists the scripts.
func Names() []string {
	entries, _ := fs.ReadDir(sources, ".")
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".lua"); ok {
			names = append(names, name)
		}
	}
	return names
}

func file(path string) string {
	text, err := fs.ReadFile(sources, path)
	if err != nil {
		panic("lua: " + err.Error())
	}
	return string(text)
}

// assemble puts the includes in place, those within them too, and says where each line came from.
func assemble(name, source string) (text string, lines []string) {
	var out strings.Builder
	var add func(path, source string)
	add = func(path, source string) {
		for i, line := range strings.Split(strings.TrimSuffix(source, "\n"), "\n") {
			if m := includeLine.FindStringSubmatch(line); m != nil {
				add("include/"+m[1], file("include/"+m[1]))
				continue
			}
			out.WriteString(line)
			out.WriteByte('\n')
			lines = append(lines, path+":"+strconv.Itoa(i+1))
		}
	}
	add(name+".lua", source)
	return out.String(), lines
}

// reply is what a script answered after its first word.
type reply struct {
	word   string
	values []valkey.ValkeyMessage
}

// run calls the script with the queue's keys and the fields of args in the script's order, then rest.
func (s *script[A]) run(ctx context.Context, client valkey.Client, keys Keys, args A, rest ...string) (reply, error) {
	return s.call(ctx, client, s.names(keys, 0), args, rest)
}

// names are the queue's keys that the script declares, with room for some more.
func (s *script[A]) names(keys Keys, more int) []string {
	names := make([]string, len(s.keys), len(s.keys)+more)
	for i, name := range s.keys {
		names[i] = keys.named[name]
	}
	return names
}

func (s *script[A]) call(ctx context.Context, client valkey.Client, keys []string, args A, rest []string) (reply, error) {
	values := make([]string, 0, len(s.fields)+len(rest))
	v := reflect.ValueOf(args)
	for _, i := range s.fields {
		switch f := v.Field(i); f.Kind() {
		case reflect.Int, reflect.Int64:
			values = append(values, strconv.FormatInt(f.Int(), 10))
		default:
			values = append(values, f.String())
		}
	}
	values = append(values, rest...)

	for try := 0; ; try++ {
		result, err := s.lua.Exec(ctx, client, keys, values).ToArray()
		if err == nil {
			return s.decode(result)
		}
		if try == maxResends || !didNotRun(err) {
			return reply{}, s.explain(err)
		}
		select {
		case <-ctx.Done():
			return reply{}, s.explain(err)
		case <-time.After(resendAfter << try):
		}
	}
}

func (s *script[A]) decode(result []valkey.ValkeyMessage) (reply, error) {
	if len(result) == 0 {
		return reply{}, fmt.Errorf("emq: script %s answered nothing", s.name)
	}
	word, err := result[0].ToString()
	if err != nil || !slices.Contains(s.words, word) {
		return reply{}, fmt.Errorf("emq: script %s answered %q, which this version does not know; want one of %v", s.name, word, s.words)
	}
	r := reply{word, result[1:]}
	switch word {
	case "misconfigured":
		return r, &ConfigError{Key: r.text(0), Field: r.text(1), Value: r.text(2)}
	case "corrupt":
		return r, &CorruptError{Key: r.text(0), Value: r.text(1)}
	}
	return r, nil
}

// text is the value at i as a string; "" when there is none.
func (r reply) text(i int) string {
	if i >= len(r.values) {
		return ""
	}
	s, _ := r.values[i].ToString()
	if s == "" {
		if n, err := r.values[i].AsInt64(); err == nil {
			return strconv.FormatInt(n, 10)
		}
	}
	return s
}

// number is the value at i as an integer; 0 when there is none.
func (r reply) number(i int) int64 {
	if i >= len(r.values) {
		return 0
	}
	n, _ := r.values[i].AsInt64()
	return n
}

// ms is the value at i, which counts milliseconds, as a duration; at most 292 years.
func (r reply) ms(i int) time.Duration {
	return milliseconds(r.number(i))
}

// until is ms, with -1 ns for every number below 0: never.
func (r reply) until(i int) time.Duration {
	return max(-1, r.ms(i))
}

// texts are the values from i on.
func (r reply) texts(i int) []string {
	var out []string
	for ; i < len(r.values); i++ {
		out = append(out, r.text(i))
	}
	return out
}
