package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func main() { os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// app is what the commands have in common.
type app struct {
	url          string // --url
	passwordFile string // --password-file
	started      bool   // a command's own code runs: what fails now is no usage error
}

// execute runs one command line and returns the exit code.
func execute(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{}
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err != nil && !a.started {
		err = usage("%v", err)
	}
	if text := errorText(err); text != "" {
		fmt.Fprintln(stderr, "emqworker: "+text)
	}
	return exitCode(err)
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "emqworker",
		Short: "Rate-limited job queues on Valkey: run workers, enqueue jobs, set limits, look at queues",
		Example: `  emqworker demo                                    # see a fleet hold a limit; needs nothing
  emqworker limits set mail 100/1m                  # at most 100 jobs a minute, all workers together
  emqworker enqueue mail '{"to":"ann@example.org"}'
  emqworker run -q mail --exec ./send               # the payload comes on standard input
  emqworker stats mail`,
		Version:       version().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetHelpTemplate(helpTemplate)
	root.CompletionOptions.HiddenDefaultCmd = true
	flags := root.PersistentFlags()
	flags.SortFlags = false
	flags.StringVar(&a.url, "url", "", "server: valkey://, valkeys:// (TLS), redis://, rediss:// or unix://; default $VALKEY_URL, else $REDIS_URL, else "+defaultURL)
	flags.StringVar(&a.passwordFile, "password-file", "", "read the server's password from this file")
	root.AddCommand(newDemo(a), newDemoWorker(a), newVerify(a), newVerifyWorker(a), newRun(a), newServe(a), newDoctor(a), newEnqueue(a), newLimits(a), newStats(a), newJob(a), newQueue(a), newVersion())
	finish(a, root)
	return root
}

// finish gives every command what all commands share: who has no code of its own asks for a subcommand, and a.started is set
// before any code runs.
func finish(a *app, cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	for _, sub := range cmd.Commands() {
		finish(a, sub)
	}
	if cmd.HasSubCommands() {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = needSubcommand
	}
	do := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.started = true
		return do(cmd, args)
	}
}

func needSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 && !cmd.HasParent() {
		return cmd.Help()
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	problem := path(cmd) + ": say what"
	if len(args) > 0 {
		problem = fmt.Sprintf("unknown command %q", strings.Join(append(strings.Fields(cmd.CommandPath())[1:], args[0]), " "))
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return usage("%s; did you mean %s?", problem, strings.Join(near, " or "))
		}
	}
	return usage("%s; want one of %s", problem, strings.Join(names, ", "))
}

// path is the command without the program's name, which every error begins with.
func path(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), "emqworker ")
}

// arguments refuses a command line with fewer than min or more than max arguments; max -1 is no bound.
func arguments(min, max int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= min && (max < 0 || len(args) <= max) {
			return nil
		}
		return fmt.Errorf("%s: %d arguments given; want %s", path(cmd), len(args), cmd.UseLine())
	}
}

// note says something that is no result.
func note(cmd *cobra.Command, format string, args ...any) {
	fmt.Fprintf(cmd.ErrOrStderr(), "emqworker: "+format+"\n", args...)
}

// short writes a length of time as people do: 1.234s, 5m0s.
func short(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.3fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

const helpTemplate = `{{with (or .Long .Short)}}{{. | trimTrailingWhitespaces}}

{{end}}{{if .HasExample}}Examples:
{{.Example}}

{{end}}Usage:
  {{if .HasAvailableSubCommands}}{{.CommandPath}} COMMAND{{else}}{{.UseLine}}{{end}}
{{if .HasAvailableSubCommands}}
Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}{{if .HasAvailableLocalFlags}}
Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}{{if .HasAvailableInheritedFlags}}
Global flags:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}`
