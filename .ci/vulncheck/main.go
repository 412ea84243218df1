// Command vulncheck runs govulncheck on a module, with a database made of the module that holds the Go vulnerability database's reports, so
// that nothing but the module proxy is needed. It fails on vulnerabilities whose code is called, but for those that accepted.txt names.
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	checker  = "golang.org/x/vuln/cmd/govulncheck@v1.9.0"
	database = "golang.org/x/vulndb@latest"
)

//go:embed accepted.txt
var acceptedText string

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: vulncheck DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	db, err := os.MkdirTemp("", "vulndb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(db)
	version, err := fill(db)
	if err != nil {
		return fmt.Errorf("making the database of %s: %w", database, err)
	}
	called, err := check(dir, db)
	if err != nil {
		return err
	}
	accepted := map[string]bool{}
	for line := range strings.Lines(acceptedText) {
		if id, _, ok := strings.Cut(strings.TrimSpace(line), " "); ok && id != "#" {
			accepted[id] = true
		}
	}
	var problems []string
	for id, trace := range called {
		if !accepted[id] {
			problems = append(problems, id+" is called: "+trace)
		}
	}
	for id := range accepted {
		if _, still := called[id]; !still && !strings.HasPrefix(id, "stdlib@") {
			problems = append(problems, id+" is accepted and not found any more; take it out of accepted.txt")
		}
	}
	slices.Sort(problems)
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "\n"))
	}
	fmt.Printf("vulncheck: %d called vulnerabilities, all accepted; database %s\n", len(called), version)
	return nil
}

// report is what the database needs of a report.
type report struct {
	ID       string
	Modified string
	Aliases  []string
	Affected []struct {
		Package struct{ Name string }
		Ranges  []struct {
			Events []struct{ Fixed string }
		}
	}
}

// fill makes a database in dir and returns its version.
func fill(dir string) (version string, err error) {
	cmd := exec.Command("go", "mod", "download", "-json", database)
	cmd.Dir = dir // outside of any module
	out, err := cmd.Output()
	var module struct{ Dir, Version, Error string }
	if jsonErr := json.Unmarshal(out, &module); jsonErr != nil || module.Error != "" || err != nil {
		return "", errors.Join(err, jsonErr, errors.New(module.Error))
	}
	for _, sub := range []string{"ID", "index"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			return "", err
		}
	}
	type moduleVuln struct {
		ID       string `json:"id"`
		Modified string `json:"modified"`
		Fixed    string `json:"fixed,omitempty"`
	}
	type moduleEntry struct {
		Path  string       `json:"path"`
		Vulns []moduleVuln `json:"vulns"`
	}
	type vulnEntry struct {
		ID       string   `json:"id"`
		Modified string   `json:"modified"`
		Aliases  []string `json:"aliases,omitempty"`
	}
	modules := map[string][]moduleVuln{}
	var vulns []vulnEntry
	var newest string
	files, err := filepath.Glob(filepath.Join(module.Dir, "data", "osv", "*.json"))
	if err != nil || len(files) == 0 {
		return "", fmt.Errorf("no reports in %s: %w", module.Dir, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		var r report
		if err := json.Unmarshal(text, &r); err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "ID", r.ID+".json"), text, 0o644); err != nil {
			return "", err
		}
		newest = max(newest, r.Modified)
		vulns = append(vulns, vulnEntry{r.ID, r.Modified, r.Aliases})
		for _, a := range r.Affected {
			v := moduleVuln{ID: r.ID, Modified: r.Modified}
			for _, ranges := range a.Ranges {
				for _, e := range ranges.Events {
					v.Fixed = max(v.Fixed, e.Fixed)
				}
			}
			modules[a.Package.Name] = append(modules[a.Package.Name], v)
		}
	}
	var entries []moduleEntry
	for path, v := range modules {
		entries = append(entries, moduleEntry{path, v})
	}
	slices.SortFunc(entries, func(a, b moduleEntry) int { return strings.Compare(a.Path, b.Path) })
	for name, v := range map[string]any{"db": map[string]string{"modified": newest}, "modules": entries, "vulns": vulns} {
		text, err := json.Marshal(v)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, "index", name+".json"), text, 0o644); err != nil {
			return "", err
		}
	}
	return module.Version, nil
}

// check are the vulnerabilities whose code is called, each with where.
func check(dir, db string) (map[string]string, error) {
	cmd := exec.Command("go", "run", checker, "-C", dir, "-db", "file://"+db, "-format", "json", "./...")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("govulncheck: %w: %s", err, errs.String())
	}
	called := map[string]string{}
	scanned := false
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct {
			SBOM    *struct{} `json:"SBOM"`
			Finding *struct {
				OSV   string `json:"osv"`
				Trace []struct {
					Module, Version, Package, Function string
					Position                           *struct {
						Filename string
						Line     int
					}
				} `json:"trace"`
			} `json:"finding"`
		}
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("govulncheck: %w", err)
		}
		scanned = scanned || m.SBOM != nil
		if m.Finding == nil || len(m.Finding.Trace) == 0 || m.Finding.Trace[0].Function == "" {
			continue
		}
		last := m.Finding.Trace[len(m.Finding.Trace)-1]
		where := m.Finding.Trace[0].Package + "." + m.Finding.Trace[0].Function
		if last.Position != nil {
			where += fmt.Sprintf(" from %s:%d", last.Position.Filename, last.Position.Line)
		}
		id := m.Finding.OSV
		if m.Finding.Trace[0].Module == "stdlib" { // mended by the toolchain that builds, not by this module
			id, where = "stdlib@"+strings.Replace(m.Finding.Trace[0].Version, "v", "go", 1), m.Finding.OSV+" "
		}
		if !strings.Contains(called[id], where) {
			called[id] += where
		}
	}
	if !scanned {
		return nil, fmt.Errorf("govulncheck said nothing of what it scanned: %s", errs.String())
	}
	return called, nil
}
