package lua

import (
	"net/url"
	"strings"
)

// Blocker is what the id of a bucket says: the limit and the key value it belongs to.
type Blocker struct {
	Limit  string // "" for the queue's own limit, and for what is closed
	Key    string // the key's name, when the jobs of a key value are closed
	Value  string // the key value; "" for a limit without by
	Closed bool   // no limit refuses but the queue, or the key value, is closed
}

// ParseBlocker reads the id of a bucket: "tpm", "tpm:acme", "tpm~1800000000000:acme", "=queue", "=model:x". Key values are percent-encoded in it.
func ParseBlocker(id string) Blocker {
	var b Blocker
	decode := func(value string) string {
		if text, err := url.PathUnescape(value); err == nil {
			return text
		}
		return value
	}
	if what, closed := strings.CutPrefix(id, "="); closed {
		b.Closed = true
		if key, value, keyed := strings.Cut(what, ":"); keyed {
			b.Key, b.Value = key, decode(value)
		}
		return b
	}
	limit, value, _ := strings.Cut(id, ":")
	b.Limit, _, _ = strings.Cut(limit, "~")
	b.Value = decode(value)
	return b
}
