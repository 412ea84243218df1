.PHONY: help valkey test test-fast faults servers vulncheck mutate long lint demo fuzz bench bench-report bench-once

# Time limit of one test binary, tests at a time in it, and time for each fuzz target.
TIMEOUT ?= 10m
PARALLEL ?= 8
FUZZTIME ?= 10s

# Flags of mutate.
MUTATEFLAGS ?=

# Flags of the benchmark, such as BENCHFLAGS='-only process'.
BENCHFLAGS ?=

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

valkey: ## install valkey-server where it is missing
	@[ -n "$$EMQ_TEST_VALKEY_SERVER" ] || .ci/install-valkey

test: valkey lint ## vet, gofmt, all tests with the race detector, the quick faults of processes and connections without
	go test -race -timeout $(TIMEOUT) -parallel $(PARALLEL) ./...
	cd internal/faults && go test -short -timeout $(TIMEOUT) ./...

test-fast: valkey ## all tests without the race detector
	go test -timeout $(TIMEOUT) -parallel $(PARALLEL) ./...

faults: valkey ## inflict every fault of docs/faults.md and print what each row measured
	@{ go test -json -count 1 -timeout 20m -run '^TestF[0-9]' ./...; \
		cd internal/faults && go test -json -count 1 -timeout 20m ./...; } | go run -C internal/faults ./report -list ../../docs/faults.md

vulncheck: ## known vulnerabilities whose code is called, and whether the modules are what go.sum says
	go mod verify
	cd .ci/vulncheck && go run . ../..

servers: ## the tests that need only a server, on Redis 7.0 (Debian's redis-server)
	@command -v redis-server >/dev/null || { echo "redis-server is missing; as root, type: apt-get install redis-server" >&2; exit 1; }
	EMQ_TEST_VALKEY_SERVER=$$(command -v redis-server) go test -count 1 -timeout $(TIMEOUT) -parallel $(PARALLEL) ./lua ./queue ./limiter ./claim ./worker

mutate: valkey ## change each comparison and each write of the scripts, and see whether a test notices (hours; MUTATEFLAGS='-only claim -part 0/10')
	go run ./internal/mutate $(MUTATEFLAGS)

long: valkey ## the random tests at length: 20,000 sequences of claims, 100,000 calls of each algorithm, 100,000 wake-ups (about an hour)
	go test -timeout 3h -v -run Model ./claim -rapid.checks 6700
	go test -timeout 1h -v -run Model ./limiter -limiter.calls 100000
	go test -timeout 1h -v -run NoWakeUpIsLost ./worker -worker.wakes 50000

lint: ## gofmt and go vet
	@bad=$$(gofmt -l .); [ -z "$$bad" ] || { echo "not gofmt'ed:"; echo "$$bad"; exit 1; } >&2
	go vet ./...
	cd bench && go vet ./...
	cd internal/faults && go vet ./...

demo: ## watch a fleet hold a limit
	go run ./cmd/emqworker demo

fuzz: valkey ## run each fuzz target for FUZZTIME
	@set -e; for pkg in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x $$pkg; \
		done; \
	done

bench-once: valkey ## run each Go benchmark once, so that they keep working
	go test -run '^$$' -bench . -benchtime 1x -timeout $(TIMEOUT) ./...

bench: valkey ## measure emq beside asynq and BullMQ; a JSON line for each figure, kept in bench/results.jsonl (20 minutes)
	@cd bench && go run . -save results.jsonl $(BENCHFLAGS)

bench-report: valkey ## measure how costs grow, draw docs/img/perf-*.svg and write the tables of docs/performance.md (5 minutes)
	@cd bench && go run . -curves -save curves.jsonl $(BENCHFLAGS) >/dev/null && go run . -report
