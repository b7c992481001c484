package main

// Patterns of inputs that several parts share.
var (
	tools    = []string{"Makefile", "go.work", "go.work.sum", "tools/lazy.sh"}
	goModule = func(dir string) []string { return []string{dir + "/go.mod", dir + "/go.sum"} }
)

// product is what bin/python-executor is built of.
var product = []string{"cli", "core/runner/cmd/python-executor-runner"}

// parts is the suite. The seconds were measured on two quiet processors (docs/testing.md).
var parts = []Part{
	// What other parts need. It is made once per machine, or when its pins change.
	{Name: "build", Tier: Gate, Command: []string{"make", "--no-print-directory", "build"}, Uses: "cpu:200", Seconds: 15, Builds: product},
	{Name: "build nomad", Tier: Gate, Command: []string{"tools/nomad.sh"}, Uses: "cpu:200", Seconds: 1},
	{Name: "build consul", Tier: Gate, Command: []string{"tools/consul.sh"}, Uses: "cpu:200", Seconds: 1},

	// The parts that run programs under other uids, or look at the whole machine, run one after another.
	{Name: "core/runner", Tier: Gate, Dir: "core", Test: []string{"-race", "./runner"}, Uses: "uids:1 cpu:80", After: []string{"build"}, Seconds: 250, Real: true},
	{Name: "backend-uv", Tier: Gate, Dir: "plugins/backend-uv", Test: []string{"-tags=embedrunner", "./..."}, Uses: "uids:1 cpu:80", After: []string{"build"}, Seconds: 500, Real: true},
	{Name: "backend-docker", Tier: Gate, Dir: "plugins/backend-docker", Test: []string{"./..."}, Uses: "uids:1 docker:1 cpu:50", After: []string{"build"}, Seconds: 500, Real: true},
	{Name: "end to end", Tier: Gate, Dir: "tests", Test: []string{"./..."}, Uses: "uids:1 docker:1 nomad:1 cpu:50", After: []string{"build", "build nomad", "build consul"}, Seconds: 600, Real: true},

	{Name: "backend-nomad", Tier: Gate, Dir: "plugins/backend-nomad", Test: []string{"./..."}, Uses: "nomad:1 cpu:60", After: []string{"build", "build nomad", "build consul"}, Seconds: 360, Real: true},
	{Name: "core", Tier: Gate, Dir: "core", Test: []string{"./..."}, Except: []string{"/core/runner", "/backendtest"}, Uses: "cpu:120", After: []string{"build"}, Seconds: 120},
	{Name: "saboteurs", Tier: Gate, Dir: "core", Test: []string{"./executor/backendtest"}, Uses: "cpu:100", After: []string{"build"}, Seconds: 80},
	{Name: "frontend-mcp", Tier: Gate, Dir: "plugins/frontend-mcp", Test: []string{"./..."}, Uses: "cpu:100", After: []string{"build"}, Seconds: 40},
	{Name: "frontends/http", Tier: Gate, Dir: "frontends/http", Test: []string{"./..."}, Uses: "cpu:100", After: []string{"build"}, Seconds: 60},
	{Name: "sdk/go", Tier: Gate, Dir: "sdk/go", Test: []string{"./..."}, Uses: "cpu:100", After: []string{"build"}, Seconds: 20},
	{Name: "cli", Tier: Gate, Dir: "cli", Test: []string{"./..."}, Uses: "cpu:100", After: []string{"build"}, Seconds: 60},
	{Name: "sdk/python", Tier: Gate, Command: []string{"tools/sdk-python.sh", "test"}, Uses: "cpu:100", After: []string{"build"}, Seconds: 60, Real: true},
	{Name: "lint", Tier: Gate, Command: []string{"tools/lint.sh"}, Uses: "cpu:150", Seconds: 60},
	{Name: "generated code", Tier: Gate, Command: []string{"tools/generate.sh", "--check"}, Uses: "cpu:100", Seconds: 2},
	{Name: "gate", Tier: Gate, Dir: "tools/gate", Test: []string{"./..."}, Env: []string{"GOWORK=off"}, Uses: "cpu:100", Seconds: 2},
}
