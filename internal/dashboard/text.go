package dashboard

import (
	"encoding/base64"
	"unicode"
	"unicode/utf8"
)

// readable is b as text for people, or its base64 when it is not text.
func readable(b []byte) string {
	for rest := b; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size <= 1 && len(rest) >= utf8.UTFMax || !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return "base64: " + base64.StdEncoding.EncodeToString(b)
		}
		rest = rest[size:]
	}
	return string(b)
}
