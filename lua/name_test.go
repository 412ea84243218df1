package lua_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

func TestF66F89Names(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"a", "A", "0", ".", "_", "-", "orders", "a.b_c-d", "...", strings.Repeat("x", 128),
	} {
		assert.NoError(t, lua.CheckName("queue name", name), "%q", name)
	}
	for name, says := range map[string]string{
		"":                       "is empty",
		strings.Repeat("x", 129): "has 129 bytes",
		"a b":                    `has ' ' at byte 1`,
		"a:b":                    `has ':' at byte 1`,
		"{a}":                    `has '{' at byte 0`,
		"a}":                     `has '}' at byte 1`,
		"a/b":                    "byte 1",
		"a|b":                    "byte 1",
		"a\nb":                   "byte 1",
		"a\n":                    "byte 1",
		"a\x00":                  "byte 1",
		"é":                      "byte 0",
		"\xff":                   "byte 0",
		"@":                      "byte 0",
		"[":                      "byte 0",
		"`":                      "byte 0",
		",":                      "byte 0",
	} {
		err := lua.CheckName("queue name", name)
		require.ErrorIs(t, err, lua.ErrBadName, "%q", name)
		assert.ErrorContains(t, err, "queue name")
		assert.ErrorContains(t, err, says)
	}
}

// FuzzName: a name is accepted if it is within the allow-list, and then all keys of the queue carry it as their hashtag.
func FuzzName(f *testing.F) {
	for _, name := range []string{"orders", "", "a b", "{a}", "a}:{b", "a:b", "é", "\xff", "a\n", strings.Repeat("x", 129)} {
		f.Add(name)
	}
	allowed := regexp.MustCompile(`\A[A-Za-z0-9._-]{1,128}\z`)
	hashtag := regexp.MustCompile(`\A[^{]*\{([^}]+)\}`)
	f.Fuzz(func(t *testing.T, name string) {
		keys, err := lua.ForQueue(name)
		if !allowed.MatchString(name) {
			require.ErrorIs(t, err, lua.ErrBadName)
			return
		}
		require.NoError(t, err)
		assert.Equal(t, name, keys.Queue())
		for _, key := range append([]string{keys.Prefix(), keys.Job("x")}, values(keys.All())...) {
			require.True(t, strings.HasPrefix(key, "emq:{"+name+"}:"), key)
			require.Equal(t, name, hashtag.FindStringSubmatch(key)[1])
		}
	})
}

func TestPublicKeys(t *testing.T) {
	t.Parallel()
	keys, err := lua.ForQueue("q")
	require.NoError(t, err)
	assert.Equal(t, "emq:{q}:meta", keys.Meta())
	assert.Equal(t, "emq:{q}:limiter", keys.Limiter())
	assert.Equal(t, "emq:{q}:wake", keys.Wake())
	assert.Equal(t, "emq:{q}:audit", keys.Audit())
	assert.Equal(t, "emq:{q}:job:x", keys.Job("x"))
	assert.Equal(t, "emq:{q}:", keys.Prefix())
	assert.Equal(t, "emq:queues", lua.Queues)
	seen := map[string]bool{}
	for name, key := range keys.All() {
		assert.False(t, seen[key], "%s is not the only one at %s", name, key)
		seen[key] = true
	}
}
