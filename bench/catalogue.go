package main

// catalogue is all that is measured, in this order.
var catalogue = append([]series{
	{figures: []figure{{name: "process_c1", unit: "jobs/s", from: "rate"}}, systems: []string{emq, asynq, bullmq, floor}, run: processing(1)},
	{figures: []figure{{name: "process_c64", unit: "jobs/s", from: "rate"}}, systems: []string{emq, asynq, bullmq, floor}, run: processing(64)},
	{figures: []figure{
		{name: "process_c256", unit: "jobs/s", from: "rate"},
		{name: "server_cpu_us_per_job", unit: "us", from: "cpu"},
	}, systems: []string{emq, asynq, bullmq, floor}, run: processing(256)},
	{figures: []figure{{name: "process_limits1", unit: "jobs/s", from: "rate"}}, systems: []string{emq, bullmq}, run: processingLimits(1)},
	{figures: []figure{{name: "process_limits2", unit: "jobs/s", from: "rate"}}, systems: []string{emq}, run: processingLimits(2)},
	{figures: []figure{{name: "process_limits3", unit: "jobs/s", from: "rate"}}, systems: []string{emq}, run: processingLimits(3)},
	{figures: []figure{{name: "enqueue_16", unit: "jobs/s", from: "single"}}, systems: []string{emq, asynq, bullmq}, run: enqueueSingle},
	{figures: []figure{{name: "enqueue_bulk", unit: "jobs/s", from: "bulk"}}, systems: []string{emq, bullmq}, run: enqueueBulk},
	{figures: []figure{{name: "bytes_per_waiting_job", unit: "B"}}, systems: []string{emq, asynq, bullmq}, once: true, run: waitMemory},
	{figures: []figure{{name: "bytes_per_job_in_line", unit: "B"}}, systems: []string{emq}, once: true, run: lineMemory},
	{figures: []figure{
		{name: "pickup_p50_ms", unit: "ms", from: "pickup"},
		{name: "pickup_p99_ms", unit: "ms", from: "pickup", stat: quantile(.99)},
		{name: "pickup_max_ms", unit: "ms", from: "pickup", stat: most},
	}, systems: []string{emq, asynq, bullmq, floor}, run: pickup},
	{figures: []figure{{name: "delayed_late_p99_ms", unit: "ms", from: "delayed", stat: quantile(.99)}},
		systems: []string{emq, bullmq, floor}, run: delayed},
	{figures: []figure{{name: "reset_late_p99_ms", unit: "ms", from: "reset", stat: quantile(.99)}}, systems: []string{emq, floor}, run: reset},
	{figures: []figure{
		{name: "claims_per_grant_200_idle", unit: "1", from: "claims"},
		{name: "scripts_per_grant_200_idle", unit: "1", from: "scripts"},
	}, systems: []string{emq, bullmq}, run: idleFleet},
	{figures: []figure{
		{name: "claims_per_grant_100_keys", unit: "1", from: "claims"},
		{name: "scripts_per_grant_100_keys", unit: "1", from: "scripts"},
	}, systems: []string{emq}, run: keyedFleet},
	{figures: []figure{{name: "burst_100_max_ms", unit: "ms"}}, systems: []string{emq}, run: bursts},
	{figures: []figure{
		{name: "limit_change_first_ms", unit: "ms", from: "first"},
		{name: "limit_change_100th_ms", unit: "ms", from: "100th"},
	}, systems: []string{emq}, run: limitChanges},
	{figures: []figure{{name: "alarm_death_late_ms", unit: "ms", from: "late", stat: most}}, systems: []string{emq}, run: alarmDeaths},
	pair(waiting), pair(due), pair(keysOver),
}, takeSeries()...)

func pair(kind string) series {
	return series{figures: []figure{
		{name: "claim_10k_" + kind, unit: "us", from: "10k"},
		{name: "claim_1m_" + kind, unit: "us", from: "1m"},
	}, systems: []string{emq}, once: true, run: growthPair(kind)}
}

func takeSeries() (all []series) {
	for _, a := range algorithms {
		all = append(all, series{
			figures: []figure{{name: "limiter_take_us_" + string(a.algorithm), unit: "us", from: "take"}},
			systems: append([]string{emq}, a.peers...), run: takes(a.algorithm),
		})
	}
	return all
}
