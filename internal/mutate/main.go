// Command mutate changes the scripts one place at a time - every comparison, every connective, every write - and runs the tests on each
// change: one that no test notices is a test that is missing, or a place that does not matter. survivors.txt lists those that do not matter,
// with the reason; mutate fails when a change survives that is not on the list, or when one on the list does not.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/echomq/emq/lua"
)

//go:embed survivors.txt
var survivorsText string

// A suite is a test binary with what of it is run on a mutant.
type suite struct {
	pkg  string
	args []string
}

var (
	models  = suite{"claim", []string{"-test.run", "TestClaimAgreesWithItsModel|TestClaimVectors|TestCostVectors", "-rapid.checks", "35", "-rapid.shrinktime", "1ms", "-rapid.nofailfile"}}
	scripts = suite{"lua", []string{"-test.skip", "TestBatchUnderLimits|TestBatchIsMany|F37|Fuzz|TestScriptTextIsNeverBuilt|F44|F40|F60|F41|F92|Garbage|TestAuditHasEachChange"}}
	scenes  = suite{"lua", []string{"-test.run", "F41|F92|Garbage|TestAuditHasEachChange"}}
	shapes  = suite{"lua", []string{"-test.run", "TestBatchUnderLimits|TestBatchIsMany|F40"}}
	buckets = suite{"limiter", []string{"-test.run", "Vectors|Model|Keys|Corrupt|Refund", "-limiter.calls", "300"}}
	reads   = suite{"metrics", nil}
	queues  = suite{"queue", nil}
	workers = suite{"worker", []string{"-test.run", "NoWakeUpIsLost|Sleepers|Missed|Watch|Stop"}}
)

// order is which suites see a file's mutants first; all see those that survive.
func order(file string) []suite {
	switch name := strings.TrimSuffix(filepath.Base(file), ".lua"); name {
	case "fixed_window", "sliding_log", "sliding_window_counter", "token_bucket", "leaky_bucket", "bucket", "level", "ratio", "take", "takeall":
		return []suite{buckets, models, scripts, reads, queues, scenes, shapes}
	case "budget", "budgets", "counts", "explain", "job", "list", "workers", "preflight", "where", "mend":
		return []suite{scripts, reads, queues, models, scenes}
	case "look", "wake", "watch":
		return []suite{scripts, models, workers, scenes, shapes, queues}
	}
	return []suite{models, scripts, queues, buckets, reads, scenes, shapes}
}

func main() {
	only := flag.String("only", "", "mutants that match this alone, as a line of survivors.txt names them: file: code [change]")
	part := flag.String("part", "", "k/n: every n-th of them, from the k-th")
	jobs := flag.Int("jobs", 2, "mutants at once")
	each := flag.Duration("timeout", 3*time.Minute, "for one suite; a mutant that hangs is noticed")
	runFor := flag.Duration("for", 0, "begin no mutant after this time")
	flag.Parse()
	if err := run(*only, *part, *jobs, *each, *runFor); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(only, part string, jobs int, each, runFor time.Duration) error {
	all, err := mutants()
	if err != nil {
		return err
	}
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	k, n := 0, 1
	if part != "" {
		if _, err := fmt.Sscanf(part, "%d/%d", &k, &n); err != nil {
			return fmt.Errorf("-part is %q; want k/n", part)
		}
	}
	var chosen []mutant
	for i, m := range all {
		if pattern.MatchString(m.name()) && i%n == k%n {
			chosen = append(chosen, m)
		}
	}
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, pkg := range []string{"claim", "lua", "limiter", "metrics", "queue", "worker"} {
		build := exec.Command("go", "test", "-c", "-o", filepath.Join(dir, pkg+".test"), "./"+pkg)
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building the tests of %s: %w: %s", pkg, err, out)
		}
	}
	listed := reasons()
	var (
		mu       sync.Mutex
		dead     int
		unknown  []string
		survived = map[string]bool{}
		working  sync.WaitGroup
		begin    = time.Now()
		done     int
	)
	next := make(chan mutant)
	for range jobs {
		working.Go(func() {
			for m := range next {
				by, err := judge(dir, m, each)
				mu.Lock()
				done++
				switch {
				case err != nil:
					fmt.Fprintf(os.Stderr, "%s:%d: %v\n", m.file, m.line, err)
				case by != "":
					dead++
				case listed[m.name()] != "":
					survived[m.name()] = true
				default:
					unknown = append(unknown, m.name())
					fmt.Printf("line %d survives:\n%s\n", m.line, m.name())
				}
				if done%25 == 0 {
					fmt.Fprintf(os.Stderr, "%d of %d: %d noticed, %d survive, %v\n", done, len(chosen), dead, len(unknown)+len(survived), time.Since(begin).Round(time.Second))
				}
				mu.Unlock()
			}
		})
	}
	for _, m := range chosen {
		if runFor > 0 && time.Since(begin) > runFor {
			break
		}
		next <- m
	}
	close(next)
	working.Wait()
	fmt.Printf("%d mutants of %d: %d noticed, %d listed as of no matter, %d not noticed\n", done, len(all), dead, len(survived), len(unknown))
	if len(unknown) > 0 {
		return fmt.Errorf("%d changes are noticed by no test and not listed", len(unknown))
	}
	return nil
}

// judge says which suite notices a mutant; "" for none.
func judge(dir string, m mutant, each time.Duration) (by string, err error) {
	scripts, err := os.MkdirTemp(dir, "scripts-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scripts)
	err = fs.WalkDir(lua.Files(), ".", func(path string, d fs.DirEntry, err error) error {
		to := filepath.Join(scripts, path)
		if err != nil || d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		text, err := fs.ReadFile(lua.Files(), path)
		if err != nil {
			return err
		}
		if path == m.file {
			text = []byte(string(text[:m.at]) + m.instead + string(text[m.at+m.length:]))
		}
		return os.WriteFile(to, text, 0o644)
	})
	if err != nil {
		return "", err
	}
	for _, s := range order(m.file) {
		ctx, cancel := context.WithTimeout(context.Background(), each)
		cmd := exec.CommandContext(ctx, filepath.Join(dir, s.pkg+".test"), append([]string{"-test.failfast", "-test.parallel", "8"}, s.args...)...)
		cmd.Dir = s.pkg
		cmd.Env = append(os.Environ(), "EMQ_TEST_SCRIPTS="+scripts)
		err := cmd.Run()
		cancel()
		if err != nil {
			return s.pkg, nil
		}
	}
	return "", nil
}

// reasons are why mutants on the list do not matter, by their names: a line that begins with # is the reason of those that follow.
func reasons() map[string]string {
	found, why := map[string]string{}, ""
	for lines := bufio.NewScanner(strings.NewReader(survivorsText)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		switch {
		case strings.HasPrefix(line, "#"):
			why = strings.TrimSpace(line[1:])
		case line != "":
			found[line] = why
		}
	}
	return found
}
