package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(workerVariable); url != "" {
		workerProcess(url)
		return
	}
	os.Exit(m.Run())
}

// Everything runs, and emq has a figure of every name.
func TestQuick(t *testing.T) {
	var out, log bytes.Buffer
	saved := filepath.Join(t.TempDir(), "results.jsonl")
	err := run(t.Context(), []string{"-quick", "-save", saved}, &out, &log)
	t.Log(log.String())
	require.NoError(t, err)
	values := map[string]float64{}
	for decoder := json.NewDecoder(&out); decoder.More(); {
		var l line
		require.NoError(t, decoder.Decode(&l))
		if l.System == emq {
			values[l.Name] = l.Value
		}
	}
	for _, s := range catalogue {
		for _, f := range s.figures {
			assert.Positive(t, values[f.name], f.name)
		}
	}
	lines, err := readLines(saved)
	require.NoError(t, err)
	assert.NotEmpty(t, lines)
}

// The page has a place for each table, and each curve is drawn.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	page, err := os.ReadFile("../docs/performance.md")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "performance.md"), page, 0o644))
	var figures, points []line
	for _, s := range catalogue {
		for _, f := range s.figures {
			figures = append(figures, line{Name: f.name, System: emq, Value: 7, Unit: f.unit})
		}
	}
	for _, c := range curves {
		for _, x := range []float64{1, 200} {
			points = append(points, line{c.name, "a line", &x, 7 * x, c.unit})
		}
	}
	results, curved := filepath.Join(dir, "results.jsonl"), filepath.Join(dir, "curves.jsonl")
	require.NoError(t, saveLines(results, figures))
	require.NoError(t, saveLines(curved, points))
	require.NoError(t, writeReport(results, curved, dir))
	page, err = os.ReadFile(filepath.Join(dir, "performance.md"))
	require.NoError(t, err)
	for _, f := range figures {
		assert.Contains(t, string(page), "| `"+f.Name+"` | "+f.Unit+" | 7 |")
	}
	for _, c := range curves {
		assert.Contains(t, string(page), "(img/perf-"+c.file+".svg)")
		assert.FileExists(t, filepath.Join(dir, "img", "perf-"+c.file+".svg"))
	}
}

func TestShow(t *testing.T) {
	for v, text := range map[float64]string{0.01234: "0.0123", 5: "5", 99.96: "100", 123.4: "123", 999.7: "1,000", 1234567: "1,234,567"} {
		assert.Equal(t, text, show(v))
	}
}

func TestQuantile(t *testing.T) {
	values := []float64{4, 1, 3, 2}
	assert.Equal(t, 2.5, median(values))
	assert.Equal(t, 2.0, quantile(.5)(values))
	assert.Equal(t, 4.0, quantile(.99)(values))
	assert.Equal(t, 1.0, quantile(0)(values))
	assert.Equal(t, 12346.0, round(12345.67))
	assert.Equal(t, 0.012346, round(0.01234567))
}
