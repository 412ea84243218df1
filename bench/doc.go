// Command bench measures emq beside its peers: asynq, BullMQ, and a floor of bare Valkey commands and bare timers, each on private
// Valkey servers without persistence that it starts and stops.
//
//	go run . [-only regexp] [-rounds 5] [-quick] [-save results.jsonl]
//
// Standard output gets one JSON object for each figure of each system as it is known, {"name", "system", "value", "unit"}; standard
// error gets the progress and at the end a table with the ratios to emq. Systems take turns, round by round. A figure is the median
// of its rounds; one about single events (a latency) is a quantile over the events of all rounds.
//
//	go run . -curves -save curves.jsonl
//	go run . -report
//
// The first measures how costs grow, the second draws what was saved into docs/img and writes the tables of docs/performance.md.
//
// Every system runs a handler that does nothing on payloads of 25 bytes, at the same concurrency; whatever else a peer has is left at
// its default. A run that leaves anything of its jobs in Valkey is an error. BullMQ needs node and npm, and is left out without them.
package main
