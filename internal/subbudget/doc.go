// Package subbudget simulates one budget leased to several shards.
//
// It is the evidence for a plan: no queue does this yet. A coordinator, one key on one server, holds the budget. A shard whose jobs
// wait takes a lease of some units, and grants those by itself until the lease ends. The rules that keep the budget:
//
//   - Units are debited from the budget before any of them is used. What a crash or a lost reply takes with it stays spent.
//   - A lease has a term, counted by the shard from when it sent its call, so it ends at the shard no later than at the coordinator.
//   - A lease of a fixed window ends with that window at the latest.
//   - A token bucket has no windows. Units debited within one term may be used together with those of the next, so the coordinator's
//     burst is smaller than the budget's by what flows in during one term.
//   - Units that a lease leaves unused are taken from the shard, then given back where they were taken from, by a call that is sent
//     once. If it is lost, so are they.
//
// [Run] plays demand, crashes and lost replies in virtual milliseconds, the same for the same [Setup], and holds every admission
// against the budget afterwards. The budget's rule is that of [limiter.Model], for the coordinator and for the replay.
package subbudget
