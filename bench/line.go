package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
)

// line is one figure of one system, or one point of a curve.
type line struct {
	Name   string   `json:"name"`
	System string   `json:"system"`
	X      *float64 `json:"x,omitempty"` // of a curve
	Value  float64  `json:"value"`
	Unit   string   `json:"unit"`
}

// same tells whether a line takes the place of l.
func (l line) same(other line) bool {
	return l.Name == other.Name && l.System == other.System && (l.X == nil) == (other.X == nil) && (l.X == nil || *l.X == *other.X)
}

func writeLine(w io.Writer, l line) {
	text, err := json.Marshal(l)
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", text)
	}
	check(err)
}

// readLines reads what saveLines wrote; no file is no lines.
func readLines(path string) (lines []line, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		var l line
		switch err := decoder.Decode(&l); {
		case errors.Is(err, io.EOF):
			return lines, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		lines = append(lines, l)
	}
}

// saveLines puts lines into a file, each in place of the one that it supersedes.
func saveLines(path string, lines []line) error {
	saved, err := readLines(path)
	if err != nil {
		return err
	}
	for _, l := range lines {
		if i := slices.IndexFunc(saved, l.same); i >= 0 {
			saved[i] = l
		} else {
			saved = append(saved, l)
		}
	}
	var out bytes.Buffer
	for _, l := range saved {
		writeLine(&out, l)
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}
