package docs_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

// The slots that scaling.md names are the queues' slots, and its masters those of three that share them evenly.
func TestScalingSlots(t *testing.T) {
	t.Parallel()
	text := read(t, "scaling.md")
	rows := regexp.MustCompile("(?m)^\\| `mail-(\\d+)` … `mail-(\\d+)` \\| (.*) \\| (.*) \\|$").FindAllStringSubmatch(text, -1)
	require.Len(t, rows, 3)
	next, spread := 0, [3]int{}
	for _, row := range rows {
		require.Equal(t, strconv.Itoa(next), row[1])
		var slots, masters []string
		for ; fmt.Sprint(next-1) != row[2]; next++ {
			slot := lua.Slot("mail-" + strconv.Itoa(next))
			slots, masters = append(slots, strconv.Itoa(slot)), append(masters, strconv.Itoa(slot*3/lua.Slots))
			spread[slot*3/lua.Slots]++
		}
		assert.Equal(t, strings.Join(slots, ", "), row[3])
		assert.Equal(t, strings.Join(masters, ", "), row[4])
	}
	assert.Equal(t, 12, next)
	assert.Contains(t, text, fmt.Sprintf("%d on master 0, %d on master 1, %d on master 2", spread[0], spread[1], spread[2]))
}

// What scaling.md shows and names exists.
func TestScalingGo(t *testing.T) {
	t.Parallel()
	text := read(t, "scaling.md")
	for _, line := range all("(?m)^(func .*)$", text) {
		assert.Contains(t, read(t, "..", "lua", "slot_example_test.go"), line)
	}
	for _, name := range all("`(Test\\w+|Benchmark\\w+)`", text) {
		assert.Contains(t, read(t, "..", "worker", "cluster_bench_test.go"), "func "+name+"(")
	}
}
