package subbudget

import (
	"math/rand/v2"
	"slices"

	"github.com/echomq/emq/limiter"
)

// world is what happens whatever the shards do: when jobs come and shards crash.
type world struct {
	demand  [][]int64 // of each shard, times
	crashes [][]int64
	net     *rand.Rand // what befalls calls
	begin   int64
	end     int64
}

func newWorld(s Setup) world {
	length := s.Budget.Window.Milliseconds()
	w := world{begin: length, end: length * (s.Length + 1), net: rand.New(rand.NewPCG(s.Seed, 0))}
	for i := range s.Shards {
		random := rand.New(rand.NewPCG(s.Seed, uint64(i+1)))
		share := 1 / float64(s.Shards)
		switch {
		case s.Hot > 0 && i == 0:
			share = s.Hot
		case s.Hot > 0:
			share = (1 - s.Hot) / float64(s.Shards-1)
		}
		jobs := w.times(random, float64(length)/(share*s.Load*float64(s.Budget.Max)))
		if s.Bursts {
			for i, at := range jobs {
				if period := 2 * length; random.Float64() < 0.9 {
					since := (at - w.begin) % period
					jobs[i] = at - since + since/10
				}
			}
			slices.Sort(jobs)
		}
		w.demand = append(w.demand, jobs)
		var crash []int64
		if s.Faults {
			crash = w.times(random, crashes)
		}
		w.crashes = append(w.crashes, apart(crash))
	}
	return w
}

// times are those of a Poisson process with a mean time between two.
func (w world) times(random *rand.Rand, mean float64) (times []int64) {
	for at := float64(w.begin); ; {
		if at += random.ExpFloat64() * mean; at >= float64(w.end) {
			return times
		}
		times = append(times, int64(at))
	}
}

// apart leaves out crashes of a shard that is down.
func apart(crashes []int64) (kept []int64) {
	for _, at := range crashes {
		if len(kept) == 0 || at > kept[len(kept)-1]+downtime {
			kept = append(kept, at)
		}
	}
	return kept
}

// OneServer is how many jobs a single server admits that holds the whole budget, of the same demand. A shard that is down keeps its
// jobs from it.
func OneServer(s Setup) (admitted int64) {
	w := newWorld(s)
	var whole limiter.Model
	waiting, back := make([]int64, s.Shards), make([]int64, s.Shards)
	for now := w.begin; now < w.end; now++ {
		for i := range s.Shards {
			for ; len(w.demand[i]) > 0 && w.demand[i][0] <= now; w.demand[i] = w.demand[i][1:] {
				waiting[i]++
			}
			if c := w.crashes[i]; len(c) > 0 && c[0] <= now {
				back[i], w.crashes[i] = c[0]+downtime, c[1:]
			}
			if waiting[i] > 0 && now >= back[i] {
				granted := must(whole.TakeUpTo(now, s.Budget, waiting[i])).Granted
				waiting[i] -= granted
				admitted += granted
			}
		}
	}
	return admitted
}
