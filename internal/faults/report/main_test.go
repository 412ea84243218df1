package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReport(t *testing.T) {
	t.Parallel()
	const good = `{"Action":"run","Package":"p","Test":"TestF01Killed"}
{"Action":"attr","Package":"p","Test":"TestF01Killed","Key":"figure","Value":"2 deliveries"}
{"Action":"output","Package":"p","Test":"TestF01Killed","Output":"said\n"}
{"Action":"pass","Package":"p","Test":"TestF01Killed/part","Elapsed":1}
{"Action":"pass","Package":"p","Test":"TestF01Killed","Elapsed":1.5}
{"Action":"pass","Package":"p","Elapsed":1.5}
`
	list := "| F01 | kill | recovered | `TestF01Killed` |\n| F19 | an hour | F05 | in words |\n"
	for name, c := range map[string]struct {
		events, list string
		good         bool
		out, err     string
	}{
		"all well":            {good, list, true, "F01  pass      TestF01Killed  1.5s  2 deliveries", ""},
		"a row without tests": {good, list, true, "F19  in words", ""},
		"a test that failed": {strings.Replace(good, `"pass","Package":"p","Test":"TestF01Killed",`, `"fail","Package":"p","Test":"TestF01Killed",`, 1), list, false,
			"F01  fail", "said"},
		"a test skipped": {strings.Replace(good, `"pass","Package":"p","Test":"TestF01Killed",`, `"skip","Package":"p","Test":"TestF01Killed",`, 1), list, false,
			"F01  skip", ""},
		"a test without an end": {`{"Action":"run","Package":"p","Test":"TestF01Killed"}`, list, false, "F01  no end", ""},
		"a test that never ran": {``, list, false, "F01  MISSING", ""},
		"a package that does not compile": {good + `{"ImportPath":"q","Action":"build-output","Output":"syntax error\n"}
{"ImportPath":"q","Action":"build-fail"}`, list, false, "", "syntax error"},
		"what is no JSON is shown": {"go: no such thing\n" + good, list, true, "", "go: no such thing"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			r := report{rows: map[string][]*test{}, tests: map[string]*test{}}
			require.NoError(t, r.read(strings.NewReader(c.events), &errs))
			assert.Equal(t, c.good, r.print(&out, c.list), out.String())
			assert.Contains(t, out.String(), c.out)
			assert.Contains(t, errs.String(), c.err)
		})
	}
}
