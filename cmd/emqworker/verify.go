package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/echomq/emq/internal/ledger"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/lua"
)

// verifyFlags are the flags of verify.
type verifyFlags struct {
	runFor, killEvery time.Duration
	seed              uint64
	workers           int
	scripts, write    string
	json              bool
}

func newVerify(a *app) *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove on a server, with processes that are killed, that nothing is lost and no limit broken",
		Long: `Start a fleet of worker processes on queues with limits of every algorithm, by key, by cost and on jobs in flight, enqueue jobs that
succeed, fail, are deferred, panic or take longer than a lease, change limits meanwhile, and kill and stop processes at random. Then
replay what every script on the server said that it did, beside what the processes wrote down, and hold it to ten invariants: nothing
lost or invented, no job under two leases, none completed twice, no grant that a limit refuses and none withheld that it allows, …

The exit code is 1 if a job was lost or a limit granted too much (over) or too little (under), or if any other invariant is broken.

It starts a private valkey-server. With --url it uses that server, in queues of its own, and deletes them at the end.

--write-scripts writes the scripts that the server runs to a directory; --scripts runs those of a directory instead, on a private
server. So you can plant a bug in a copy and see it found.`,
		Example: `  emqworker verify
  emqworker verify --for 20m --kill-every 1s --seed 7
  emqworker verify --url valkey://127.0.0.1:6379 --json
  emqworker verify --write-scripts copy; $EDITOR copy/claim.lua; emqworker verify --scripts copy`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.write != "":
				return writeScripts(f.write)
			case f.runFor < time.Second:
				return usage("verify: --for is %v; want 1s or more", f.runFor)
			case f.killEvery < 0 || f.killEvery > 0 && f.killEvery < 50*time.Millisecond:
				return usage("verify: --kill-every is %v; want 50ms or more, or 0 for never", f.killEvery)
			case f.workers < 1 || f.workers > 64:
				return usage("verify: --workers is %d; want 1 to 64", f.workers)
			case f.scripts != "" && a.url != "":
				return usage("verify: --scripts is for a private server; leave --url out")
			}
			return verify(a, cmd, f)
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&f.runFor, "for", 30*time.Second, "how long jobs are enqueued and processes killed")
	flags.DurationVar(&f.killEvery, "kill-every", 2*time.Second, "time between two kills or stops, on average; 0 for none")
	flags.Uint64Var(&f.seed, "seed", 0, "of what is random; 0 for a new one, which is told")
	flags.IntVar(&f.workers, "workers", 4, "worker processes")
	flags.StringVar(&f.scripts, "scripts", "", "run the scripts of this directory")
	flags.StringVar(&f.write, "write-scripts", "", "write the built-in scripts to this directory, and end")
	flags.BoolVar(&f.json, "json", false, "print one JSON object, at the end")
	return cmd
}

// writeScripts writes the built-in scripts to a directory.
func writeScripts(dir string) error {
	return fs.WalkDir(lua.Files(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, path)
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		text, err := fs.ReadFile(lua.Files(), path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o644)
	})
}

// verifyResult is what verify found, as --json prints it.
type verifyResult struct {
	ledger.Counts
	Server      string             `json:"server"`
	Seed        uint64             `json:"seed"`
	Seconds     float64            `json:"seconds"`
	Queues      int                `json:"queues"`
	Kills       int                `json:"kills"`
	Stops       int                `json:"stops"`
	Changes     int                `json:"limit_changes"`
	Left        int                `json:"left"` // jobs that were not done when the time to drain was over
	Goroutines  int                `json:"goroutines_grown"`
	Descriptors int                `json:"descriptors_grown"`
	Violations  []ledger.Violation `json:"violations"`
	More        int                `json:"violations_beyond"` // not told one by one
}

func (r verifyResult) held() bool {
	return r.Over == 0 && r.Under == 0 && r.Lost == 0 && len(r.Violations) == 0
}

func verify(a *app, cmd *cobra.Command, f verifyFlags) error {
	if f.seed == 0 {
		f.seed = rand.Uint64N(1_000_000)
	}
	if f.scripts != "" {
		if err := lua.Use(os.DirFS(f.scripts)); err != nil {
			return usage("verify: --scripts: %w", err)
		}
	}
	server, err := a.verifyServer(cmd)
	if err != nil {
		return err
	}
	defer server.close()
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	v, err := newVerification(a, server, f)
	if err != nil {
		return err
	}
	defer v.close()
	if !f.json {
		fmt.Fprintf(cmd.OutOrStdout(), "%d worker processes on %d queues for %v, one killed or stopped each %v or so. Server: %s. Seed: %d.\n",
			f.workers, len(v.queues), f.runFor, f.killEvery, server.name, f.seed)
	}
	result, err := v.run(ctx)
	if err != nil {
		return err
	}
	if f.json {
		if err := printJSON(cmd.OutOrStdout(), result); err != nil {
			return err
		}
	} else if err := printVerified(cmd, result); err != nil {
		return err
	}
	if !result.held() {
		return told(exitFailure)
	}
	return nil
}

// verifyServer is a private server, or the one of --url.
func (a *app) verifyServer(cmd *cobra.Command) (*demoServer, error) {
	if a.url == "" && a.passwordFile == "" {
		server, err := valkeyd.Start(valkeyd.Options{})
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("verify: %w; or name a server by --url", err)
		} else if err != nil {
			return nil, err
		}
		from := *a
		from.url = server.URL()
		client, err := from.connect(cmd)
		if err != nil {
			server.Stop()
			return nil, err
		}
		return &demoServer{name: serverName(cmd.Context(), client, true), private: true, client: client, stop: server.Stop,
			env: append(os.Environ(), "VALKEY_URL="+server.URL())}, nil
	}
	return a.startServer(cmd, false)
}

func printVerified(cmd *cobra.Command, r verifyResult) error {
	broken := map[string]int{}
	for _, v := range r.Violations {
		broken[v.Invariant]++
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\n\tinvariant\tbroken\n")
	for _, i := range ledger.Invariants {
		fmt.Fprintf(table, "%s\t%s\t%d\n", i.Name, i.Rule, broken[i.Name])
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, v := range r.Violations {
		fmt.Fprintf(cmd.OutOrStdout(), "\n%s, queue %s: %s", v.Invariant, v.Queue, v.Text)
	}
	if r.More > 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "\n… and %d more", r.More)
	}
	word := "HELD"
	if !r.held() {
		word = "NOT HELD"
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), `
%s: %d kills and %d stops in %.0f s, %d changes of limits; %d jobs enqueued, %d claims, %d grants, %d sent back, %d fixed windows.
%d over the limits, %d under them while jobs waited, %d lost, %d completed twice.
%d jobs completed, %d dead, %d not done when it ended; %d leases ran out, the slowest reclaimed after %d ms; %d runs overlapped one whose lease had ended.
`, word, r.Kills, r.Stops, r.Seconds, r.Changes, r.Enqueued, r.Claims, r.Admitted, r.SentBack, r.Windows, r.Over, r.Under, r.Lost, r.RunTwice,
		r.Completed, r.Dead, r.Left, r.Reclaimed, r.LateMS, r.Overlaps)
	return err
}

// knownKeys are what keys of a single job, limit or process begin with, after the queue's prefix.
var knownKeys = strings.Fields("job: result: settled: worker: limiter: line: lined: hold:")

// known says whether a key of a queue is one that the protocol knows.
func known(keys lua.Keys, key string) bool {
	name := strings.TrimPrefix(key, keys.Prefix())
	if keys.Has(name) {
		return true
	}
	for _, prefix := range knownKeys {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
