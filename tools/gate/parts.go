package main

import "slices"

// product is what bin/python-executor is built of, beside the files of these packages: built.
var (
	product = []string{"cli", "core/runner/cmd/python-executor-runner"}
	built   = []string{"Makefile", "go.work", "go.work.sum", "tools/lazy.sh"}
)

// noInput are files that no part reads.
var noInput = []string{"LICENSE", "README.md", "CONTRIBUTING.md", ".gitignore", ".ci/", "docs/", "bench/", "tests/faults/"}

var (
	afterBuild   = []string{"build"}
	afterDaemons = []string{"build", "daemons"}
	afterAgents  = []string{"build", "daemons", "consul"}
	agentTools   = []string{"tools/nomad.sh", "tools/nomad/", "tools/consul.sh", "tools/consul/", "tools/test-images.sh"}
)

// daemons keeps the daemons until its standard input is closed.
const daemons = `CGO_ENABLED=0 go build -o bin/daemons ./tests/cmd/daemons && exec bin/daemons ${DAEMONS:--nomad} -- sh -c '
  env | grep -E "^PYEXEC_TEST_(DOCKER|NOMAD)="; echo; exec cat >/dev/null'`

// parts is the suite. The seconds were measured on two quiet processors (docs/testing.md).
var parts = []Part{
	// What other parts need. It is made once per machine, or when its pins change.
	{Name: "build", Tier: Gate, Command: []string{"make", "--no-print-directory", "build"}, Uses: "cpu:200", Seconds: 10, Builds: product},
	{Name: "nomad", Tier: Gate, Command: []string{"sh", "-c", "[ $(id -u) != 0 ] || tools/nomad.sh"}, Uses: "cpu:200", Seconds: 1000, Inputs: []string{"tools/nomad.sh", "tools/nomad/"}},
	{Name: "consul", Tier: Gate, Command: []string{"tools/consul.sh"}, Uses: "cpu:200", Seconds: 1000, Inputs: []string{"tools/consul.sh", "tools/consul/"}},
	// One Docker daemon and one cluster of Nomad for all parts, where this machine can run them.
	{Name: "daemons", Tier: Gate, Command: []string{"sh", "-c", daemons}, Serves: true, Uses: "cpu:50", After: []string{"nomad"}, Seconds: 10, Inputs: agentTools},

	// The parts that run programs under other uids, or look at the whole machine, are apart or run one after another.
	{Name: "runner", Tier: Gate, Dir: "core", Test: []string{"-race", "./runner"}, Uses: "uids:1 cpu:60", Apart: true, After: afterBuild, Seconds: 400, Real: true},
	{Name: "backend-uv", Tier: Gate, Dir: "plugins/backend-uv", Test: []string{"-tags=embedrunner", "./..."}, Uses: "uids:1 cpu:60", Apart: true, After: afterBuild, Seconds: 250, Real: true, Builds: product},
	{Name: "backend-docker", Tier: Gate, Dir: "plugins/backend-docker", Test: []string{"./..."}, Uses: "docker:1 cpu:45", After: afterDaemons, Seconds: 250, Real: true, Builds: product, Inputs: agentTools},
	{Name: "end-to-end", Tier: Gate, Dir: "tests", Test: []string{"./..."}, Uses: "uids:1 docker:1 nomad:1 cpu:50", After: afterAgents, Seconds: 250, Real: true, Builds: product, Inputs: endToEnd},
	{Name: "backend-nomad", Tier: Gate, Dir: "plugins/backend-nomad", Test: []string{"./..."}, Uses: "nomad:1 cpu:35", After: afterAgents, Seconds: 200, Real: true, Builds: product, Inputs: agentTools},
	{Name: "sdk-python", Tier: Gate, Command: []string{"tools/sdk-python.sh", "test"}, Uses: "cpu:90", After: afterBuild, Seconds: 110, Real: true, Builds: product, Inputs: sdkPython},

	{Name: "core", Tier: Gate, Dir: "core", Test: []string{"./..."}, Except: pure, Uses: "cpu:120", After: afterBuild, Seconds: 70, Inputs: coreFiles},
	{Name: "saboteurs", Tier: Gate, Dir: "core", Test: []string{"./executor/backendtest"}, Uses: "cpu:40", After: afterBuild, Seconds: 120, Inputs: coreFiles},
	{Name: "rules", Tier: Gate, Dir: "core", Test: []string{"-run=^TestTheGateRunsEachRule$", "./executor/backendtest"}, Env: []string{"PYEXEC_TEST_RULES_END=1"}, Uses: "cpu:50", After: []string{"saboteurs", "backend-uv", "backend-docker", "backend-nomad"}, Seconds: 2},
	{Name: "frontend-mcp", Tier: Gate, Dir: "plugins/frontend-mcp", Test: []string{"./..."}, Uses: "cpu:100", After: afterBuild, Seconds: 20},
	{Name: "frontends-http", Tier: Gate, Dir: "frontends/http", Test: []string{"./..."}, Uses: "cpu:100", After: afterBuild, Seconds: 25, Inputs: wireData},
	{Name: "sdk-go", Tier: Gate, Dir: "sdk/go", Test: []string{"./..."}, Uses: "cpu:100", After: afterBuild, Seconds: 10, Inputs: wireData},
	{Name: "cli", Tier: Gate, Dir: "cli", Test: []string{"./..."}, Uses: "cpu:100", After: afterBuild, Seconds: 35, Inputs: cliFiles},
	{Name: "lint", Tier: Gate, Command: []string{"tools/lint.sh"}, Uses: "cpu:130", Seconds: 120, Inputs: everyGoFile},
	{Name: "generated", Tier: Gate, Command: []string{"tools/generate.sh", "--check"}, Uses: "cpu:100", Seconds: 2, Inputs: []string{"core/executor/wire/", "tools/"}},
	{Name: "sabotage", Tier: Gate, Dir: "tools/gate", Test: []string{"-run=^TestASabotagedTreeIsRed$", "."}, Env: []string{"GOWORK=off", "PYEXEC_GATE_SABOTAGE=1"}, Uses: "cpu:100", After: afterDaemons, Seconds: 35},
	{Name: "gate", Tier: Gate, Dir: "tools/gate", Test: []string{"./..."}, Env: []string{"GOWORK=off"}, Uses: "cpu:100", Seconds: 25},

	// The long parts. Each is the part of the gate of the same name, whole: with what needtest.Long leaves out of the gate, with the
	// race detector, and with the floors of coverage.
	{Name: "long-runner", Tier: Long, Dir: "core", Test: []string{"-race", "-cover", "-coverpkg=./runner/...", "-skip=^TestProgramsRunAsUnderPlainPython$", "./runner"}, Uses: "uids:1 cpu:80", Apart: true, After: afterBuild, Seconds: 300, Floors: true, Inputs: floors},
	{Name: "long-uv", Tier: Long, Dir: "plugins/backend-uv", Test: []string{"-race", "-cover", "-tags=embedrunner", "./..."}, Uses: "uids:1 cpu:80", Apart: true, After: afterBuild, Seconds: 600, Floors: true, Builds: product, Inputs: floors},
	{Name: "long-docker", Tier: Long, Dir: "plugins/backend-docker", Test: []string{"-race", "-cover", "./..."}, Uses: "uids:1 docker:1 cpu:50", After: afterDaemons, Seconds: 600, Floors: true, Builds: product, Inputs: concat(floors, agentTools)},
	{Name: "long-nomad", Tier: Long, Dir: "plugins/backend-nomad", Test: []string{"-race", "-cover", "./..."}, Uses: "nomad:1 cpu:60", After: afterAgents, Seconds: 400, Floors: true, Builds: product, Inputs: concat(floors, agentTools)},
	{Name: "long-end-to-end", Tier: Long, Dir: "tests", Test: []string{"./..."}, Uses: "uids:1 docker:1 nomad:1 cpu:50", After: afterAgents, Seconds: 800, Builds: product, Inputs: endToEnd},
	{Name: "long-core", Tier: Long, Dir: "core", Test: []string{"-race", "-cover", "./..."}, Except: pure, Uses: "cpu:120", After: afterBuild, Seconds: 300, Floors: true, Inputs: concat(floors, coreFiles)},
	{Name: "long-saboteurs", Tier: Long, Dir: "core", Test: []string{"-cover", "./executor/backendtest"}, Uses: "cpu:100", After: afterBuild, Seconds: 80, Floors: true, Inputs: concat(floors, coreFiles)},
	{Name: "long-mcp", Tier: Long, Dir: "plugins/frontend-mcp", Test: []string{"-race", "-cover", "./..."}, Uses: "cpu:100", After: afterBuild, Seconds: 60, Floors: true, Inputs: floors},
	{Name: "long-http", Tier: Long, Dir: "frontends/http", Test: []string{"-race", "-cover", "./..."}, Uses: "cpu:100", After: afterBuild, Seconds: 160, Floors: true, Inputs: concat(floors, wireData)},
	{Name: "long-sdk-go", Tier: Long, Dir: "sdk/go", Test: []string{"-race", "-cover", "./..."}, Uses: "cpu:100", After: afterBuild, Seconds: 40, Floors: true, Inputs: concat(floors, wireData)},
	{Name: "long-cli", Tier: Long, Dir: "cli", Test: []string{"-race", "-cover", "./..."}, Uses: "cpu:100", After: afterBuild, Seconds: 100, Floors: true, Inputs: concat(floors, cliFiles)},
	{Name: "pythons", Tier: Long, Command: []string{"tools/sdk-python.sh", "all"}, Uses: "cpu:100", After: afterBuild, Seconds: 600, Builds: product, Inputs: sdkPython},
	{Name: "fidelity", Tier: Long, Dir: "core", Test: []string{"-run=^TestProgramsRunAsUnderPlainPython$", "./runner"}, Uses: "uids:1 cpu:150", Apart: true, After: afterBuild, Seconds: 300},
	{Name: "v2", Tier: Long, Command: []string{"tools/v2.sh"}, Uses: "cpu:100", After: afterBuild, Seconds: 1500, Inputs: v2Files},
	{Name: "platforms", Tier: Long, Command: []string{"tools/lint.sh", "--platforms"}, Uses: "cpu:200", Seconds: 120, Inputs: everyGoFile},
}

// Inputs that `go list` does not find.
var (
	// pure is what the parts core and long-core leave to others.
	pure        = []string{"/core/runner", "/backendtest"}
	coreFiles   = []string{"docs/contract.md", "configs/", "testdata/"}
	wireData    = []string{"testdata/", "frontends/http/openapi.json"}
	cliFiles    = []string{"configs/", "deploy/", "testdata/", "examples/", "docs/docker.md", "docs/nomad.md"}
	floors      = []string{"tools/coverage.sh", "tools/coverage.txt"}
	everyGoFile = []string{"core/", "plugins/", "frontends/", "sdk/go/", "cli/", "tests/", "examples/", "tools/", ".golangci.yml", "go.work", "go.work.sum"}
	v2Files     = []string{"core/runner/sandbox/", "core/runner/agent/", "core/runner/zygote/", "plugins/backend-uv/", "tools/v2.sh", "tools/v2/"}
	sdkPython   = []string{"sdk/python/", "testdata/", "tools/sdk-python.sh", "frontends/http/openapi.json"}
	endToEnd    = concat(agentTools, []string{"tests/testdata/", "examples/", "testdata/", "configs/", "deploy/", "docs/plugins.md", "tools/python-backend.sh", "tools/sdk-python.sh", "tools/mcp-tools.sh", "tools/mcp/"})
)

func concat(lists ...[]string) []string { return slices.Concat(lists...) }
