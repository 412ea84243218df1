// Command report reads the output of go test -json on its standard input and prints the rows of faults with what each measured.
// It exits with 1 if a test failed, or if a row of docs/faults.md that names tests ran none of them.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	list := flag.String("list", "docs/faults.md", "the table of rows")
	flag.Parse()
	text, err := os.ReadFile(*list)
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(2)
	}
	r := report{rows: map[string][]*test{}, tests: map[string]*test{}}
	if err := r.read(os.Stdin, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(2)
	}
	if !r.print(os.Stdout, string(text)) {
		os.Exit(1)
	}
}

// event is a line of go test -json.
type event struct {
	Action, Package, ImportPath, Test, Output, Key, Value string
	Elapsed                                               float64
}

// test is what became of one test.
type test struct {
	name, figure, outcome string
	took                  time.Duration
	output                []string
}

type report struct {
	rows     map[string][]*test // by row, such as F05
	tests    map[string]*test   // by package and name
	failed   int                // packages and tests
	packages map[string][]string
}

var row = regexp.MustCompile(`^Test((?:F\d\d)+)`)

// read takes all events; the output of what failed goes to w as soon as that is known.
func (r *report) read(in io.Reader, w io.Writer) error {
	r.packages = map[string][]string{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(w, lines.Text()) // of go itself
			continue
		}
		r.add(e, w)
	}
	return lines.Err()
}

func (r *report) add(e event, w io.Writer) {
	if e.Test == "" {
		r.addPackage(e, w)
		return
	}
	top, _, sub := strings.Cut(e.Test, "/")
	t := r.tests[e.Package+" "+top]
	if t == nil {
		t = &test{name: top}
		r.tests[e.Package+" "+top] = t
		if m := row.FindStringSubmatch(top); m != nil {
			for id := m[1]; id != ""; id = id[3:] { // one test may be of several rows
				r.rows[id[:3]] = append(r.rows[id[:3]], t)
			}
		}
	}
	switch e.Action {
	case "output":
		t.output = append(t.output, e.Output)
	case "attr":
		if e.Key == "figure" {
			t.figure = strings.TrimPrefix(t.figure+"; "+e.Value, "; ")
		}
	case "pass", "fail", "skip":
		if sub {
			return
		}
		t.outcome, t.took = e.Action, time.Duration(e.Elapsed*float64(time.Second))
		if e.Action == "fail" {
			r.failed++
			fmt.Fprint(w, strings.Join(t.output, ""))
		}
		t.output = nil
	}
}

func (r *report) addPackage(e event, w io.Writer) {
	name := e.Package + e.ImportPath
	switch e.Action {
	case "output", "build-output":
		r.packages[name] = append(r.packages[name], e.Output)
	case "fail", "build-fail":
		r.failed++
		fmt.Fprint(w, strings.Join(r.packages[name], ""))
	}
}

var listed = regexp.MustCompile(`(?m)^\| (F\d\d) \|.*`)

// print prints a line for each row and says whether all is well.
func (r *report) print(w io.Writer, list string) (good bool) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "row\t\ttest\ttook\tfigure")
	good = r.failed == 0
	var passed, failed int
	for _, m := range listed.FindAllStringSubmatch(list, -1) {
		tests := r.rows[m[1]]
		if len(tests) == 0 {
			if strings.Contains(m[0], "`TestF") {
				good = false
				fmt.Fprintf(table, "%s\tMISSING\t\t\tdocs/faults.md names a test that did not run\n", m[1])
			} else {
				fmt.Fprintf(table, "%s\tin words\t\t\tdocs/faults.md\n", m[1])
			}
		}
		slices.SortFunc(tests, func(a, b *test) int { return strings.Compare(a.name, b.name) })
		for _, t := range tests {
			switch t.outcome {
			case "pass":
				passed++
			case "":
				t.outcome = "no end"
				fallthrough
			default:
				good = false
				failed++
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", m[1], t.outcome, t.name, t.took.Round(10*time.Millisecond), t.figure)
		}
	}
	_ = table.Flush()
	fmt.Fprintf(w, "\n%d passed, %d failed\n", passed, failed)
	return good
}
