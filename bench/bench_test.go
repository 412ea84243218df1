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
