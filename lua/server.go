package lua

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/valkey-io/valkey-go"
)

var (
	// ErrServerTooOld is wrapped when the server is older than Valkey 7.2 or Redis 7.0.
	ErrServerTooOld = errors.New("server too old")
	// ErrEvicts is wrapped when the server's maxmemory-policy may evict keys: it takes limiters and leases first.
	ErrEvicts = errors.New("server evicts keys")
)

// CheckServer refuses a server on which a queue cannot keep its promises: [ErrServerTooOld], or [ErrEvicts] unless
// allowEviction. What the server does not tell (a user without INFO) is not checked.
func CheckServer(ctx context.Context, c valkey.Client, allowEviction bool) error {
	info, err := c.Do(ctx, c.B().Info().Section("server", "memory").Build()).ToString()
	if err != nil {
		if _, answered := valkey.IsValkeyErr(err); answered {
			return nil
		}
		return fmt.Errorf("emq: checking the server: %w", err)
	}
	field := func(name string) string {
		for line := range strings.Lines(info) {
			if value, ok := strings.CutPrefix(line, name+":"); ok {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	if v := field("valkey_version"); v != "" {
		if older(v, 7, 2) {
			return fmt.Errorf("emq: %w: Valkey %s; want 7.2 or later", ErrServerTooOld, v)
		}
	} else if v := field("redis_version"); v != "" && older(v, 7, 0) {
		return fmt.Errorf("emq: %w: Redis %s; want 7.0 or later, or Valkey 7.2 or later", ErrServerTooOld, v)
	}
	if policy := field("maxmemory_policy"); !allowEviction && policy != "" && policy != "noeviction" {
		return fmt.Errorf("emq: %w: maxmemory-policy is %s, which evicts limiters and leases first; "+
			"set it to noeviction, or allow eviction in the options", ErrEvicts, policy)
	}
	return nil
}

func older(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, errA := strconv.Atoi(parts[0])
	b, errB := strconv.Atoi(parts[1])
	return errA == nil && errB == nil && (a < major || a == major && b < minor)
}
