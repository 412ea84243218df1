package lua

import (
	"context"
	"time"

	"github.com/valkey-io/valkey-go"
)

// Await blocks on a connection of its own until a wake token is there, or for at most d; it says whether there was one.
func Await(ctx context.Context, c valkey.Client, keys Keys, d time.Duration) (woken bool, err error) {
	d = max(d, time.Millisecond) // the server takes 0 for no end
	err = c.Do(ctx, c.B().Blpop().Key(keys.Wake()).Timeout(d.Seconds()).Build()).Error()
	if valkey.IsValkeyNil(err) {
		return false, nil
	}
	return err == nil, err
}
