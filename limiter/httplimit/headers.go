package httplimit

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/echomq/emq/limiter"
)

// Dialect is how the fields are named and written.
type Dialect int

// The dialects.
const (
	Draft11 Dialect = iota // RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers-11
	Draft12                // the same of the draft's next text, which renamed the parameters of RateLimit
	Legacy                 // X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset
)

// Policy is a limit and what it decided about a request.
type Policy struct {
	Name     string // as clients see it, printable ASCII; "default" when empty
	Limit    limiter.Limit
	Decision limiter.Decision
}

// Set writes the fields of the policies that a request was judged by. Retry-After is the longest of those that deny. Legacy
// has room for one policy: the one with the least remaining.
func Set(h http.Header, dialect Dialect, policies ...Policy) {
	var retry time.Duration
	var limiting []Policy
	for _, p := range policies {
		switch wait := p.Decision.RetryAfter; {
		case wait == limiter.Never || retry == limiter.Never:
			retry = limiter.Never
		default:
			retry = max(retry, wait)
		}
		if p.Decision.Source == limiter.Store && p.Decision.Remaining >= 0 {
			limiting = append(limiting, p)
		}
	}
	if retry > 0 {
		h.Set("Retry-After", number(seconds(retry)))
	}
	if len(limiting) == 0 {
		return
	}
	if dialect == Legacy {
		least := limiting[0]
		for _, p := range limiting {
			if p.Decision.Remaining < least.Decision.Remaining {
				least = p
			}
		}
		h.Set("X-RateLimit-Limit", number(least.Limit.Max))
		h.Set("X-RateLimit-Remaining", number(least.Decision.Remaining))
		h.Set("X-RateLimit-Reset", number(seconds(least.Decision.ResetAfter)))
		return
	}
	remaining, window := "r", "t"
	if dialect == Draft12 {
		remaining, window = "a", "w"
	}
	var rules, states []string
	for _, p := range limiting {
		rule := quote(p.Name) + ";q=" + number(p.Limit.Max)
		if w := p.Limit.Window; w == 0 {
			rule += ";w=1"
		} else if w%time.Second == 0 {
			rule += ";w=" + number(seconds(w))
		}
		wait := p.Decision.ResetAfter
		if p.Decision.RetryAfter > 0 {
			wait = p.Decision.RetryAfter
		}
		rules = append(rules, rule)
		states = append(states, fmt.Sprintf("%s;%s=%s;%s=%s", quote(p.Name), remaining, number(p.Decision.Remaining), window, number(seconds(wait))))
	}
	h.Set("RateLimit-Policy", strings.Join(rules, ", "))
	h.Set("RateLimit", strings.Join(states, ", "))
}

// seconds is d in seconds, rounded up.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// number is n as a structured field may hold it: with 15 digits at most.
func number(n int64) string { return strconv.FormatInt(min(n, 999_999_999_999_999), 10) }

// quote is a name as a string of a structured field.
func quote(name string) string {
	if name == "" {
		name = "default"
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
}

// printable tells whether a name can be a string of a structured field.
func printable(name string) bool {
	return strings.IndexFunc(name, func(c rune) bool { return c < ' ' || c > '~' }) < 0
}
