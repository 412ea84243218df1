package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/echomq/emq/lua"
)

// judged is how many suspects one script judges.
const judged = 100

// mend has suspects judged with the queue at rest, and put right if the doctor is to fix. told says of those for which done was done, or
// would be, what they are and what --fix does; it returns how many these are.
func (d *Doctor) mend(ctx context.Context, keys lua.Keys, check string, suspects []lua.Suspect, told map[string][2]string) (found int, err error) {
	by := map[string][]string{}
	for some := range slices.Chunk(suspects, judged) {
		answers, err := lua.Mend(ctx, d.Client, keys, d.Fix, some)
		if answered(err) {
			d.add(check, Unseen, keys.Queue(), "grant what an operator may", "%d suspects cannot be judged: %v", len(suspects), err)
			return len(suspects), nil
		}
		if err != nil {
			return 0, err
		}
		for i, done := range answers {
			by[done] = append(by[done], some[i].Name)
		}
	}
	for _, done := range []string{"restored", "listed", "unlisted", "counted", "dropped"} {
		names := by[done]
		if len(names) == 0 {
			continue
		}
		found += len(names)
		what := fmt.Sprintf("%s: %d, such as %s", told[done][0], len(names), strings.Join(names[:min(3, len(names))], ", "))
		if d.Fix {
			d.add(check, Mended, keys.Queue(), "", "%s", what)
		} else {
			d.add(check, Wrong, keys.Queue(), "--fix: "+told[done][1], "%s", what)
		}
	}
	return found, nil
}

// places finds ids in lists and sets whose record is gone, and records that stand nowhere.
func (d *Doctor) places(ctx context.Context, keys lua.Keys) error {
	lost, err := d.lost(ctx, keys)
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		d.add("places", Warning, keys.Queue(), "nothing: the claim that meets one moves it to dead as missing, where you can delete it", "%d jobs are listed whose record is gone, such as %s", len(lost), strings.Join(lost[:min(3, len(lost))], ", "))
	}
	records, err := d.recorded(ctx, keys)
	if err != nil {
		return err
	}
	ids, err := d.listed(ctx, keys)
	if err != nil {
		return err
	}
	var suspects []lua.Suspect
	for _, id := range records {
		if _, listed := ids[id]; !listed {
			suspects = append(suspects, lua.Suspect{Kind: "job", Name: id})
		}
	}
	found, err := d.mend(ctx, keys, "places", suspects, map[string][2]string{"restored": {"jobs that stand in no list", "they wait at their places"}})
	if err == nil && len(lost)+found == 0 {
		d.add("places", OK, keys.Queue(), "", "every job stands where it should")
	}
	return err
}

// recorded are the ids of all records, up to a bound.
func (d *Doctor) recorded(ctx context.Context, keys lua.Keys) (ids []string, err error) {
	err = d.eachKey(ctx, keys, "job:*", func(key string) error {
		if len(ids) < mostJobs {
			ids = append(ids, strings.TrimPrefix(key, keys.Job("")))
		}
		return nil
	})
	return ids, err
}

// lost are ids that wait or are delayed, and have no record; those that still have none a moment later.
func (d *Doctor) lost(ctx context.Context, keys lua.Keys) (lost []string, err error) {
	for round := range 2 {
		ids, err := d.listed(ctx, keys)
		if err != nil {
			return nil, err
		}
		var without []string
		for id := range ids {
			if ids[id] == "dead" || ids[id] == "completed" {
				continue
			}
			n, err := d.Client.Do(ctx, d.Client.B().Exists().Key(keys.Job(id)).Build()).AsInt64()
			if err != nil {
				return nil, err
			}
			if n == 0 {
				without = append(without, id)
			}
		}
		if len(without) == 0 {
			return nil, nil
		}
		if round == 1 {
			again := map[string]bool{}
			for _, id := range lost {
				again[id] = true
			}
			lost = nil
			for _, id := range without {
				if again[id] {
					lost = append(lost, id)
				}
			}
			return lost, nil
		}
		lost = without
		time.Sleep(100 * time.Millisecond)
	}
	return lost, nil
}

// listed are the ids of all jobs by where they stand, the places that a job goes to last looked at first and last, so that one that moves
// is met.
func (d *Doctor) listed(ctx context.Context, keys lua.Keys) (map[string]string, error) {
	ids := map[string]string{}
	all := keys.All()
	sets := []string{"active", "delayed", "back", "dead", "completed"}
	lists := []string{"wait1", "wait2", "wait3", "wait4"}
	for _, name := range append(append([]string{}, sets...), append(lists, sets...)...) {
		key := all[name]
		for from := int64(0); from < mostJobs; from += page {
			var members []string
			var err error
			if strings.HasPrefix(name, "wait") {
				members, err = d.Client.Do(ctx, d.Client.B().Lrange().Key(key).Start(from).Stop(from+page-1).Build()).AsStrSlice()
			} else {
				members, err = d.Client.Do(ctx, d.Client.B().Zrange().Key(key).Min(strconv.FormatInt(from, 10)).Max(strconv.FormatInt(from+page-1, 10)).Build()).AsStrSlice()
			}
			if err != nil {
				return nil, err
			}
			for _, m := range members {
				id, _, _ := strings.Cut(m, "|")
				ids[id] = name
			}
			if len(members) < page {
				break
			}
		}
	}
	err := d.eachKey(ctx, keys, "line:*", func(key string) error {
		members, err := d.Client.Do(ctx, d.Client.B().Zrange().Key(key).Min("0").Max(strconv.Itoa(mostJobs)).Build()).AsStrSlice()
		for _, id := range members {
			ids[id] = "line"
		}
		return err
	})
	return ids, err
}
