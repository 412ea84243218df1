package main

import (
	"io/fs"
	"regexp"
	"strings"

	"github.com/echomq/emq/lua"
)

// mutant is one change of one file.
type mutant struct {
	file       string
	at, length int // bytes
	instead    string
	line       int
	what       string // for people: "<= for <"
	code       string // the line
}

// name identifies a mutant as long as its line stays as it is.
func (m mutant) name() string { return m.file + ": " + m.code + " [" + m.what + "]" }

// swaps are what stands in place of each comparison and each connective: the boundary and the contrary.
var swaps = map[string][]string{
	"==": {"~="}, "~=": {"=="}, "<": {"<=", ">="}, "<=": {"<", ">"}, ">": {">=", "<="}, ">=": {">", "<"}, "and": {"or"}, "or": {"and"}, "not": {""},
}

var (
	operator = regexp.MustCompile(`==|~=|<=|>=|<|>|\b(?:and|or|not)\b`)
	write    = regexp.MustCompile(`(?:^|\bthen|\bdo|\belse|;)\s*(call\('(SET|SETRANGE|INCRBY|MSET|PEXPIRE|UNLINK|DEL|HSET|HDEL|HINCRBY|LPUSH|RPUSH|LREM|LTRIM|LPOP|ZADD|ZREM|ZINCRBY|ZUNIONSTORE|ZREMRANGEBYSCORE|ZREMRANGEBYRANK|RENAME|XADD|XTRIM)')`)
)

// mutants are all changes of all scripts, in order.
func mutants() (all []mutant, err error) {
	err = fs.WalkDir(lua.Files(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(lua.Files(), path)
		if err == nil {
			all = append(all, mutantsOf(path, string(text))...)
		}
		return err
	})
	return all, err
}

func mutantsOf(file, text string) (all []mutant) {
	masked := mask(text)
	at := 0
	for number, line := range strings.SplitAfter(text, "\n") {
		bare := masked[at : at+len(line)]
		add := func(from, length int, instead, what string) {
			all = append(all, mutant{file, at + from, length, instead, number + 1, what, strings.TrimSpace(line)})
		}
		for _, m := range operator.FindAllStringIndex(bare, -1) {
			was := bare[m[0]:m[1]]
			for _, instead := range swaps[was] {
				what := instead + " for " + was
				if instead == "" {
					what = "without " + was
				}
				add(m[0], len(was), instead, what)
			}
		}
		for _, m := range write.FindAllStringSubmatchIndex(line, -1) {
			if strings.TrimSpace(bare[m[2]:m[2]+4]) != "call" {
				continue // in a comment
			}
			if end := closing(masked, at+m[2]+len("call")); end > 0 {
				add(m[2], end-at-m[2], "", "without "+line[m[4]:m[5]])
			}
		}
		at += len(line)
	}
	return all
}

// mask is text with blanks for comments and for what stands between quotes.
func mask(text string) string {
	b := []byte(text)
	blank := func(from, to int) {
		for ; from < to; from++ {
			if b[from] != '\n' {
				b[from] = ' '
			}
		}
	}
	for i := 0; i < len(b); i++ {
		switch {
		case strings.HasPrefix(text[i:], "--"), i == 0 && b[0] == '#':
			end := i + strings.IndexByte(text[i:]+"\n", '\n')
			blank(i, end)
			i = end
		case b[i] == '\'' || b[i] == '"':
			end := i + 1
			for end < len(b) && b[end] != b[i] {
				if b[end] == '\\' {
					end++
				}
				end++
			}
			blank(i+1, end)
			i = end
		}
	}
	return string(b)
}

// closing is the end of the brackets that open at from; 0 if they do not close.
func closing(masked string, from int) int {
	depth := 0
	for i := from; i < len(masked); i++ {
		switch masked[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}
