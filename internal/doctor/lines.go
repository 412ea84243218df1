package doctor

import (
	"context"
	"slices"
	"strings"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/lua"
)

// lines finds lines that no claim looks at, or that are counted wrong.
func (d *Doctor) lines(ctx context.Context, keys lua.Keys) error {
	buckets := map[string]bool{}
	sums := map[string]int64{} // by limit
	all := keys.All()
	err := d.eachKey(ctx, keys, "line:*", func(key string) error {
		buckets[strings.TrimPrefix(key, keys.Prefix()+"line:")] = true
		return nil
	})
	if err != nil {
		return err
	}
	err = d.eachKey(ctx, keys, "lined:*", func(key string) error {
		return d.eachMember(ctx, key, func(bucket string, score float64) {
			buckets[bucket] = true
			sums[strings.TrimPrefix(key, keys.Prefix()+"lined:")] += int64(score)
		})
	})
	for _, name := range []string{"lines", "open", "stale"} {
		if err == nil {
			err = d.eachMember(ctx, all[name], func(bucket string, _ float64) { buckets[bucket] = true })
		}
	}
	if err != nil {
		return err
	}
	tally, err := d.Client.Do(ctx, d.Client.B().Hgetall().Key(all["tally"]).Build()).AsIntMap()
	if err != nil {
		return err
	}
	for name := range tally {
		if limit, ok := strings.CutPrefix(name, "line "); ok {
			sums[limit] += 0
		}
	}
	var suspects []lua.Suspect
	for bucket := range buckets {
		right, err := d.lineIsRight(ctx, keys, bucket)
		if err != nil {
			return err
		}
		if !right {
			suspects = append(suspects, lua.Suspect{Kind: "line", Name: bucket})
		}
	}
	for limit, sum := range sums {
		if tally["line "+limit] != sum {
			suspects = append(suspects, lua.Suspect{Kind: "line", Name: limit})
		}
	}
	slices.SortFunc(suspects, func(a, b lua.Suspect) int { return strings.Compare(a.Name, b.Name) })
	found, err := d.mend(ctx, keys, "lines", suspects, map[string][2]string{
		"listed":   {"lines that no claim looks at", "they are judged anew"},
		"unlisted": {"empty lines that claims look at", "they are forgotten"},
		"counted":  {"lines that are counted wrong", "they are counted again"},
	})
	if err == nil && found == 0 {
		d.add("lines", OK, keys.Queue(), "", "every line is looked at and counted right")
	}
	return err
}

// lineIsRight looks at the line of a bucket in several steps, in which it may move.
func (d *Doctor) lineIsRight(ctx context.Context, keys lua.Keys, bucket string) (bool, error) {
	limit, _, _ := strings.Cut(bucket, ":")
	all, b := keys.All(), d.Client.B
	length, err := d.Client.Do(ctx, b().Zcard().Key(keys.Prefix()+"line:"+bucket).Build()).AsInt64()
	if err != nil {
		return false, err
	}
	listed := false
	for _, set := range []string{"lines", "open", "stale"} {
		_, has, err := d.score(ctx, all[set], bucket)
		if err != nil {
			return false, err
		}
		listed = listed || has
	}
	counted, _, err := d.score(ctx, keys.Prefix()+"lined:"+limit, bucket)
	return listed == (length > 0) && int64(counted) == length, err
}

// leases finds what belongs to leases of jobs that are not active: places of concurrency limits, and what the hash leases keeps.
func (d *Doctor) leases(ctx context.Context, keys lua.Keys) error {
	all := keys.All()
	var suspects []lua.Suspect
	suspect := func(member, bucket string) error {
		_, active, err := d.score(ctx, all["active"], member)
		if err == nil && !active {
			suspects = append(suspects, lua.Suspect{Kind: "lease", Name: member, Bucket: bucket})
		}
		return err
	}
	members, err := d.Client.Do(ctx, d.Client.B().Hkeys().Key(all["leases"]).Build()).AsStrSlice()
	if err != nil {
		return err
	}
	for _, member := range members {
		if err := suspect(member, ""); err != nil {
			return err
		}
	}
	named, err := d.Client.Do(ctx, d.Client.B().Hgetall().Key(keys.Limits()).Build()).AsStrMap()
	if err != nil {
		return err
	}
	for _, words := range named {
		bucket, rest, _ := strings.Cut(words, " ")
		if !strings.HasPrefix(rest, "concurrency ") {
			continue
		}
		look := func(key string) error {
			var holders []string
			err := d.eachMember(ctx, key, func(member string, _ float64) { holders = append(holders, member) })
			for i := 0; i < len(holders) && err == nil; i++ {
				err = suspect(holders[i], strings.TrimPrefix(key, keys.Limiter()+":"))
			}
			return err
		}
		if err := look(keys.Limiter() + ":" + bucket); err != nil {
			return err
		}
		if err := d.eachKey(ctx, keys, "limiter:"+bucket+":*", look); err != nil {
			return err
		}
	}
	found, err := d.mend(ctx, keys, "leases", suspects, map[string][2]string{"dropped": {"places and leases that belong to no active job", "they are given back"}})
	if err == nil && found == 0 {
		d.add("leases", OK, keys.Queue(), "", "every place of a concurrency limit belongs to an active job")
	}
	return err
}

// eachMember calls do with the members of a sorted set, page by page.
func (d *Doctor) eachMember(ctx context.Context, key string, do func(member string, score float64)) error {
	for cursor := uint64(0); ; {
		page, err := d.Client.Do(ctx, d.Client.B().Zscan().Key(key).Cursor(cursor).Count(page).Build()).AsScanEntry()
		if err != nil {
			return err
		}
		for i := 0; i+1 < len(page.Elements); i += 2 {
			do(page.Elements[i], number(page.Elements[i+1]))
		}
		if cursor = page.Cursor; cursor == 0 {
			return nil
		}
	}
}

func (d *Doctor) score(ctx context.Context, key, member string) (score float64, has bool, err error) {
	score, err = d.Client.Do(ctx, d.Client.B().Zscore().Key(key).Member(member).Build()).AsFloat64()
	if valkey.IsValkeyNil(err) {
		return 0, false, nil
	}
	return score, err == nil, err
}
