package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// tables are the generated parts of performance.md, by the names in their markers, and the figures in each.
var tables = []struct {
	name    string
	figures *regexp.Regexp
}{
	{"throughput", regexp.MustCompile(`^(process|enqueue|server_cpu)_`)},
	{"memory", regexp.MustCompile(`^bytes_`)},
	{"latency", regexp.MustCompile(`^(pickup|delayed|reset|burst|limit_change|alarm)_`)},
	{"fleet", regexp.MustCompile(`_per_grant_`)},
	{"growth", regexp.MustCompile(`^claim_`)},
	{"limiter", regexp.MustCompile(`^limiter_`)},
}

// writeReport draws the saved curves into docs/img and writes the saved figures between the markers of docs/performance.md.
func writeReport(results, curved, docs string) error {
	figures, err := readLines(results)
	if err != nil {
		return err
	}
	points, err := readLines(curved)
	if err != nil {
		return err
	}
	if len(figures) == 0 {
		return fmt.Errorf("%s has no figures: measure first", results)
	}
	if err := os.MkdirAll(filepath.Join(docs, "img"), 0o755); err != nil {
		return err
	}
	path := filepath.Join(docs, "performance.md")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	page := string(text)
	for _, t := range tables {
		these := slices.DeleteFunc(slices.Clone(figures), func(l line) bool { return !t.figures.MatchString(l.Name) })
		if page, err = between(page, t.name, markdown(these)); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, c := range curves {
		image := "img/perf-" + c.file + ".svg"
		shown := "Not drawn yet: `make bench-report` does.\n"
		if len(points) > 0 {
			shown = "![" + c.title + "](" + image + ")\n"
			if err := c.draw(points, filepath.Join(docs, image)); err != nil {
				return fmt.Errorf("drawing %s: %w", c.name, err)
			}
		}
		if page, err = between(page, "plot "+c.file, shown); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return os.WriteFile(path, []byte(page), 0o644)
}

// between puts text between the markers of a name.
func between(page, name, text string) (string, error) {
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end: "+name+" -->"
	before, rest, found := strings.Cut(page, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("it lacks the markers %q and %q", strings.TrimSpace(begin), end)
	}
	return before + begin + text + end + after, nil
}

// markdown is a table of name by system.
func markdown(lines []line) string {
	if len(lines) == 0 {
		return "Not measured yet: `make bench` does.\n"
	}
	columns := columnsOf(lines)
	var out strings.Builder
	fmt.Fprintf(&out, "| figure | unit | %s |\n|---|---|%s\n", strings.Join(columns, " | "), strings.Repeat("--:|", len(columns)))
	for _, r := range rows(lines) {
		fmt.Fprintf(&out, "| `%s` | %s |", r.name, r.unit)
		for _, system := range columns {
			fmt.Fprintf(&out, " %s |", r.cell(system))
		}
		out.WriteByte('\n')
	}
	return out.String()
}
