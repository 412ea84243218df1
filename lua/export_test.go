package lua

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"
)

// Older is what CheckServer compares versions by.
var Older = older

// Kind is the type that a declared key should have.
func Kind(name string) string {
	if name == "bucket" {
		return "string"
	}
	return keyTypes[name].kind
}

// Declared lists the keys that a script declares, in its order.
func Declared(name string) []string {
	var keys []string
	for _, m := range declaration.FindAllStringSubmatch(Source(name), -1) {
		if m[2] == "KEYS" {
			keys = append(keys, m[1])
		}
	}
	return keys
}

// Probe is a script that a test wrote.
type Probe[A any] struct{ script *script[A] }

// BindProbe binds a text as bind does the scripts' files.
func BindProbe[A any](source string, words ...string) Probe[A] {
	return Probe[A]{bindText[A]("probe", source, words...)}
}

// Run returns the word and the values of the answer.
func (p Probe[A]) Run(ctx context.Context, c valkey.Client, keys Keys, args A, rest ...string) (string, []string, error) {
	r, err := p.script.run(ctx, c, keys, args, rest...)
	return r.word, r.texts(0), err
}

// LineOf says where the first line of a script's text that contains part came from.
func LineOf(name, part string) string {
	text, lines := assemble(name, file(name+".lua"))
	i := slices.IndexFunc(strings.Split(text, "\n"), func(line string) bool { return strings.Contains(line, part) })
	return lines[i]
}

var claimWithoutHolds = func() *script[claimArgs] {
	text, _ := assemble("claim", file("claim.lua"))
	const rule = "local MOVES_TO_HOLD = 3"
	if !strings.Contains(text, rule) {
		panic("the rule against starvation has moved")
	}
	return bindText[claimArgs]("claim", strings.Replace(text, rule, "local MOVES_TO_HOLD = 99", 1), claimScript.words...)
}()

// ClaimWithoutHolds claims by the script without its rule against starvation and returns the ids.
func ClaimWithoutHolds(ctx context.Context, c valkey.Client, keys Keys, nonce string, k int, lease time.Duration) ([]string, error) {
	r, err := claimWithoutHolds.run(ctx, c, keys, claimArgs{"", nonce, k, lease.Milliseconds(), 3})
	var ids []string
	for i := range int(r.number(11)) {
		ids = append(ids, r.text(13+2*i))
	}
	return ids, err
}
