# python-executor. `make` prints this help; `make test` is what CI runs and nothing else decides.
SHELL := /bin/bash
MODULES := core plugins/backend-uv plugins/backend-docker plugins/backend-nomad plugins/frontend-mcp frontends/http sdk/go cli tests
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GOBUILD := CGO_ENABLED=0 go build -trimpath
LDFLAGS := -s -w -X main.version=$(VERSION)
RUNNER := core/runner/binary/runner.bin

.PHONY: help
help: ## print this help
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: $(RUNNER) ## one static, stripped bin/python-executor with the runner inside
	@tools/lazy.sh
	@GOWORK=$(CURDIR)/bin/lazy/go.work $(GOBUILD) -tags embedrunner -ldflags '$(LDFLAGS)' -o bin/python-executor ./cli

.PHONY: $(RUNNER)
$(RUNNER):
	@$(GOBUILD) -ldflags '-s -w' -o $@ ./core/runner/cmd/python-executor-runner

.PHONY: run
run: build ## run the two examples on the embedded engine
	bin/python-executor run examples/hello
	bin/python-executor run examples/report

.PHONY: bin/gate
bin/gate:
	@cd tools/gate && GOWORK=off CGO_ENABLED=0 go build -trimpath -o ../../bin/gate .

.PHONY: check
check: bin/gate ## two minutes, as any user: lint and unit tests of what changed, and the law on the fake
	@exec bin/gate check

.PHONY: test
test: bin/gate ## the gate: everything that must pass before a change is taken; PART="core cli" runs some of its parts, LOOPS=4 all beside busy loops (docs/testing.md)
	@exec bin/gate test $(PART)

.PHONY: test-long
test-long: bin/gate ## the long parts that are due, or PART="fidelity long-uv"; what they show is written to tools/gate/ledger.txt
	@tools/gvisor.sh; exec bin/gate long $(PART)

.PHONY: test-load
test-load: bin/gate ## the gate's parts with real programs beside LOOPS busy loops (four per processor) and with slow system calls; PART=…
	@exec bin/gate load $(PART)

.PHONY: due
due: bin/gate ## the long parts that have not passed with the files of this commit; fails if there is one
	@exec bin/gate due

.PHONY: lint
lint: ## vet, staticcheck, import table, gosec, GOWORK=off, cross-compilation
	@tools/lint.sh

.PHONY: generate
generate: ## write generated code (proto, openapi.json)
	@tools/generate.sh

.PHONY: baseline
baseline: ## at a release: take proto and openapi.json as what the next ones must stay compatible with
	@cd core/executor/wire/proto && "$$(../../../../tools/tool.sh buf)" build -o released.binpb
	@cp frontends/http/openapi.json frontends/http/openapi.released.json

.PHONY: sdk-python
sdk-python: build ## the Python SDK: wheel and sdist, reproducible; its tests on every Python at hand (PYTHONS)
	@tools/sdk-python.sh all

.PHONY: bench
bench: build ## interleaved benchmarks and their targets; raw numbers go to bench/; BENCH_FLAGS="-cases 'http sync'" selects
	@tools/bench.sh $(BENCH_FLAGS)

.PHONY: bench-check
bench-check: build ## the fast rows of bench, three times; fails if one is worse than in the last committed run
	@tools/bench.sh -check -repetitions 3 -rounds 40 -turn 2s $(BENCH_FLAGS)

.PHONY: soak
soak: build ## load and kill -9 for minutes
	@tools/soak.sh

.PHONY: chaos
chaos: build ## kill -9 of example backends, workers, Nomad and our server under load for minutes
	@tools/chaos.sh

.PHONY: switch
switch: build ## 60 s of load while the configuration changes its backend; SWITCH_FLAGS="-plugin PATH" adds a backend
	@go run ./tests/cmd/switch -binary bin/python-executor $(SWITCH_FLAGS)

.PHONY: fidelity
fidelity: ## every program of the fidelity corpus on every Python at hand, by python itself, by the runner and as forks
	@cd core && PYEXEC_TEST_LONG=1 go test -run '^TestProgramsRunAsUnderPlainPython$$' -count 1 -timeout 30m ./runner

.PHONY: abuse
abuse: build ## fidelity corpus, abuse suite, fork server and network, as root and as nobody, ABUSE_ROUNDS times (2); nothing may be left
	@tools/abuse.sh

.PHONY: faults
faults: ## which test notices each fault of tests/faults: FAULT='engine-*' selects; FAULTS_FLAGS=-whole runs all that cover the changed files
	@go run ./tests/cmd/faults table -faults '$(or $(FAULT),*)' $(FAULTS_FLAGS)

.PHONY: mutants
mutants: ## which test notices each of SAMPLE (300) changed operators, chosen by SEED (1), of PACKAGES=core/engine/,sdk/go/
	@go run ./tests/cmd/faults mutants -gremlins "$$(tools/tool.sh gremlins)" -seed $(or $(SEED),1) -sample $(or $(SAMPLE),300) -packages '$(PACKAGES)' $(MUTANTS_FLAGS)

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZ_TIME (1m each), FUZZ_JOBS at once
	@tools/fuzz.sh

.PHONY: clean
clean: ## remove what was built here (the shared cache stays)
	rm -rf bin $(RUNNER)
