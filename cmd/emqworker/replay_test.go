package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// judged replays entries, each written as "at op field=value …", with the limit 2 in 1000 ms.
func judged(entries ...string) *replay {
	r := newReplay()
	for _, text := range entries {
		words := strings.Split(text, " ")
		e := map[string]string{"at": words[0], "op": words[1], "max": "2", "duration": "1000"}
		for _, field := range words[2:] {
			name, value, _ := strings.Cut(field, "=")
			e[name] = strings.ReplaceAll(value, "+", " ")
		}
		r.add(e)
	}
	return r
}

// enqueued is the entry of jobs a, b, … at a time.
func enqueued(at int, ids string) string {
	places := make([]string, len(ids))
	for i := range places {
		places[i] = "2:" + strconv.Itoa(i+1)
	}
	return strconv.Itoa(at) + " enqueue ids=" + strings.Join(strings.Split(ids, ""), "+") + " places=" + strings.Join(places, "+")
}

func TestReplay(t *testing.T) {
	t.Parallel()
	type verdict struct {
		over, under, late int64
		deferred          int
	}
	for name, c := range map[string]struct {
		entries []string
		want    verdict
	}{
		"held": {[]string{
			enqueued(0, "abcde"),
			"10 claim granted=a+b opened=1", "20 claim sent_back=c retry_after=990",
			"1010 claim granted=c opened=1", "1015 claim granted=d", "1016 claim sent_back=e retry_after=994",
			"2013 claim granted=e opened=1",
		}, verdict{late: 3, deferred: 2}},
		"a full window and one more": {[]string{
			enqueued(0, "abcde"), "10 claim granted=a+b opened=1", "20 claim granted=c", "30 claim granted=d+e",
		}, verdict{over: 3}},
		"more than max at once": {[]string{
			enqueued(0, "abcde"), "10 claim granted=a+b+c opened=1",
		}, verdict{over: 1}},
		"a window before the last is over": {[]string{
			enqueued(0, "abcd"), "10 claim granted=a+b opened=1", "1009 claim granted=c+d opened=1",
		}, verdict{over: 2}},
		"a grant without a window": {[]string{enqueued(0, "a"), "10 claim granted=a"}, verdict{over: 1}},
		"too few although jobs waited": {[]string{
			enqueued(0, "abcd"), "10 claim k=5 granted=a opened=1", "1010 claim k=5 granted=b+c opened=1", "2010 claim k=5 granted=d opened=1",
		}, verdict{under: 1}},
		"refused although a window was over": {[]string{
			enqueued(0, "abc"), "10 claim k=5 granted=a+b opened=1", "1010 claim k=5", "1011 claim k=5 granted=c opened=1",
		}, verdict{under: 1, late: 1}},
		"few asked for": {[]string{
			enqueued(0, "ab"), "10 claim k=1 granted=a opened=1", "1010 claim k=1 granted=b opened=1",
		}, verdict{}},
		"a claim that says more, or is paused": {[]string{
			enqueued(0, "ab"), "10 claim k=5 granted=a opened=1 more=1", "20 claim k=5 answer=paused",
		}, verdict{}},
		"too few because none waited for a while": {[]string{
			enqueued(0, "a"), "10 claim k=5 granted=a opened=1", enqueued(900, "bc"), "1010 claim granted=b+c opened=1",
		}, verdict{}},
		"too few in the last window": {[]string{
			enqueued(0, "ab"), "10 claim k=5 granted=a opened=1", "1500 settle jobs=complete+a|1-x+0",
		}, verdict{under: 1}},
		"late while jobs waited": {[]string{
			enqueued(0, "abc"), "10 claim granted=a+b opened=1", "1710 claim granted=c opened=1",
		}, verdict{late: 700}},
		"not late before there was a job": {[]string{
			enqueued(0, "ab"), "10 claim granted=a+b opened=1", enqueued(5000, "c"), "5004 claim granted=c opened=1",
		}, verdict{late: 4}},
		"delayed jobs do not wait": {[]string{
			"0 enqueue ids=a+b places=2:1+2:2@9000", "10 claim granted=a opened=1", "9001 claim returned=b granted=b opened=1",
		}, verdict{}},
		"jobs handed back and reclaimed wait again": {[]string{
			enqueued(0, "ab"), "10 claim granted=a+b opened=1", "20 settle jobs=back+a|1-x+0,complete+b|1-x+0",
			"1010 claim granted=a opened=1", "2010 claim reclaimed=a", "3000 claim granted=a opened=1",
		}, verdict{late: 990}},
	} {
		r := judged(c.entries...)
		assert.Equal(t, c.want, verdict{r.over, r.under, r.latest(), r.deferred}, name)
	}
	r := judged(enqueued(0, "ab"), "10 claim granted=a+b opened=1", "20 settle jobs=complete+a|1-x+0", "30 settle jobs=complete+a|1-x+0,retry+b|1-x+5")
	assert.Equal(t, map[string]int{"a": 2}, r.completed)
}
