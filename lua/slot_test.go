package lua_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/lua"
)

// hashtags are keys and the part that their slot is made from.
var hashtags = map[string]string{
	"":                "",
	"123456789":       "123456789",
	"a{b}c":           "b",
	"{b}":             "b",
	"{}x":             "{}x",
	"x{}":             "x{}",
	"{}{b}":           "{}{b}",
	"{{a}}":           "{a",
	"{a}{b}":          "a",
	"a}b{c}":          "c",
	"}a{":             "}a{",
	"{a":              "{a",
	"a{":              "a{",
	"{\x00}x":         "\x00",
	"{\xff\xfe}":      "\xff\xfe",
	"emq:{q}:limiter": "q",
	"emq:{q}:meta":    "q",
}

// bitwise is the slot of a hashtag by the definition of CRC16-XMODEM, bit by bit.
func bitwise(tag string) int {
	var crc uint16
	for _, b := range []byte(tag) {
		crc ^= uint16(b) << 8
		for range 8 {
			top := crc >> 15
			crc = crc<<1 ^ 0x1021*top
		}
	}
	return int(crc) % 16384
}

func TestSlotIsMadeFromTheHashtag(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 12739, lua.Slot("123456789"))
	for key, tag := range hashtags {
		assert.Equal(t, bitwise(tag), lua.Slot(key), "%q", key)
	}
}

func TestKeysOfAQueueShareASlot(t *testing.T) {
	t.Parallel()
	keys, err := lua.ForQueue("q")
	require.NoError(t, err)
	for _, key := range append([]string{keys.Job("x")}, values(keys.All())...) {
		assert.Equal(t, lua.Slot("q"), lua.Slot(key), key)
	}
}

// FuzzSlot compares with what a cluster says.
func FuzzSlot(f *testing.F) {
	s := server(f, valkeyd.Options{Cluster: true})
	o := s.Options()
	o.ForceSingleClient = true
	c, err := valkey.NewClient(o)
	require.NoError(f, err)
	f.Cleanup(c.Close)
	for key := range hashtags {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		want, err := c.Do(t.Context(), c.B().ClusterKeyslot().Key(key).Build()).AsInt64()
		require.NoError(t, err)
		assert.EqualValues(t, want, lua.Slot(key), "%q", key)
	})
}
