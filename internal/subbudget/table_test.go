package subbudget_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/internal/subbudget"
	"github.com/echomq/emq/limiter"
)

var update = flag.Bool("update", false, "rewrite the table of docs/scaling.md")

const (
	guide = "../../docs/scaling.md"
	begin = "<!-- table of TestTable, by go test ./internal/subbudget -run TestTable -update -->\n"
	end   = "<!-- end of the table -->\n"
)

// The table of the guide is what the simulation says.
func TestTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(guide)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begin)
	require.True(t, found, "%s has no line %q", guide, begin)
	was, after, found := strings.Cut(rest, end)
	require.True(t, found, "%s has no line %q", guide, end)
	is := table()
	if *update {
		require.NoError(t, os.WriteFile(guide, []byte(before+begin+is+end+after), 0o644))
		return
	}
	assert.Equal(t, is, was, "the table is out of date: go test ./internal/subbudget -run TestTable -update")
}

func table() string {
	var b strings.Builder
	row := func(cells ...string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	row("budget", "lease", "whole: calls a job", "under, even", "under, hot", "under, hot, faults", "not returned: under, hot",
		"exact: calls a job", "under, even", "under, hot", "under, hot, faults")
	row(strings.Fields(strings.Repeat("--- ", 11))...)
	for _, budget := range []limiter.Limit{aligned, bucket} {
		for _, lease := range leases {
			size := fmt.Sprintf("%d %%", lease*100/most)
			if lease == 1 {
				size = "1 unit"
			}
			calm, faulty := setup(1, budget, 4, lease, false), setup(1, budget, 4, lease, true)
			cells := []string{name(budget), size, calls(hot(calm)), under(even(calm)), under(hot(calm)), under(hot(faulty))}
			calm.Keep = true
			cells = append(cells, under(hot(calm)))
			calm.Keep, calm.Exact, faulty.Exact = false, true, true
			row(append(cells, calls(hot(calm)), under(even(calm)), under(hot(calm)), under(hot(faulty)))...)
		}
	}
	b.WriteString("\n")
	row("budget", "shards", "calls a job, even", "calls a job, hot", "under, hot", "under, hot, faults")
	row(strings.Fields(strings.Repeat("--- ", 6))...)
	for _, budget := range []limiter.Limit{aligned, bucket} {
		for _, shards := range []int{2, 4, 8} {
			calm, faulty := setup(1, budget, shards, leases[2], false), setup(1, budget, shards, leases[2], true)
			calm.Exact, faulty.Exact = true, true
			row(name(budget), fmt.Sprint(shards), calls(even(calm)), calls(hot(calm)), under(hot(calm)), under(hot(faulty)))
		}
	}
	return b.String()
}

func name(budget limiter.Limit) string {
	if budget.Algorithm == limiter.TokenBucket {
		return "`token_bucket`"
	}
	return "`fixed_window`"
}

func calls(s subbudget.Setup) string { return fmt.Sprintf("%.2f", subbudget.Run(s).CallsPerJob()) }

func under(s subbudget.Setup) string {
	return fmt.Sprintf("%.1f %%", max(0, 100*subbudget.Run(s).Under(subbudget.OneServer(s))))
}
