package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"time"
	"unicode/utf8"
)

// encode is v as JSON in one line, as readable as JSON allows.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("emqworker: " + err.Error()) // of our own structs of plain fields
	}
	return b.Bytes()
}

// printJSON writes v with one write.
func printJSON(w io.Writer, v any) error {
	_, err := w.Write(encode(v))
	return err
}

// readable is b as text, or its base64 when it is not UTF-8.
func readable(b []byte) (text string, isBase64 bool) {
	if utf8.Valid(b) {
		return string(b), false
	}
	return base64.StdEncoding.EncodeToString(b), true
}

// orEmpty makes nil maps {} in JSON.
func orEmpty[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}

// ms is t in milliseconds since 1970; 0 for the zero time.
func ms(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
