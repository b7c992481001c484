package mcpfrontend

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/python-executor/python-executor/core/executor"
)

// The execution strategies: names of the specification, whatever process is started.
const (
	strategyUV     = "uv-run"
	strategySystem = "system-python"
)

// timeoutSuffix ends stderr when a time limit fired.
const timeoutSuffix = "[TIMEOUT]"

// defaultTimeoutSeconds is that of the sync tools.
const defaultTimeoutSeconds = 300

// startWait bounds how long an async start with dependencies waits for what the program's start tells.
const startWait = 60 * time.Second

// scriptNames are the arguments of the toolset by the fields of the Spec that is made of them.
var scriptNames = map[string]string{
	"code": "script_content", "config.timeout_seconds": "timeout_seconds", "entrypoint": "script_path", "host_directory": "directory",
	"requirements_txt": "dependencies", "sample_interval_seconds": "sample_interval",
}

type dirArgs struct {
	Directory     string   `json:"directory" jsonschema:"Folder to run in; it must exist"`
	ScriptPath    *string  `json:"script_path,omitempty" jsonschema:"Script file, absolute or relative to directory; not with script_content"`
	ScriptContent *string  `json:"script_content,omitempty" jsonschema:"Source code; not with script_path"`
	Args          []string `json:"args,omitempty" jsonschema:"Arguments of the script"`
	UseUV         *bool    `json:"use_uv,omitempty" jsonschema:"true (default): a managed interpreter, with the locked dependencies of the folder's uv.lock or pyproject.toml; false: the system's python"`
	PythonVersion *string  `json:"python_version,omitempty" jsonschema:"Exact minor version, like 3.13; only with use_uv"`
}

type depsArgs struct {
	ScriptContent *string  `json:"script_content,omitempty" jsonschema:"Source code; not with script_path"`
	ScriptPath    *string  `json:"script_path,omitempty" jsonschema:"Script file; not with script_content"`
	PythonVersion string   `json:"python_version" jsonschema:"Exact minor version, like 3.13"`
	Dependencies  []string `json:"dependencies,omitempty" jsonschema:"Packages, like requests or numpy>=2"`
	Args          []string `json:"args,omitempty" jsonschema:"Arguments of the script"`
}

type syncArgs struct {
	TimeoutSeconds *int64 `json:"timeout_seconds,omitempty" jsonschema:"Seconds until the script is stopped; default 300; 0: the server's maximum"`
}

type asyncArgs struct {
	Stream bool `json:"stream,omitempty" jsonschema:"Stored and shown by list_running_jobs; output can be read while the job runs in any case"`
}

type runInDirArgs struct {
	dirArgs
	syncArgs
}

type runInDirAsyncArgs struct {
	dirArgs
	asyncArgs
}

type runWithDepsArgs struct {
	depsArgs
	syncArgs
}

type runWithDepsAsyncArgs struct {
	depsArgs
	asyncArgs
}

type benchmarkArgs struct {
	depsArgs
	syncArgs
	SampleInterval *float64 `json:"sample_interval,omitempty" jsonschema:"Seconds between two looks at the memory; default 0.05, at least 0.01"`
}

// runScriptResult is what run_script_in_dir returns.
type runScriptResult struct {
	Stdout            string  `json:"stdout"`
	Stderr            string  `json:"stderr"`
	ExitCode          int     `json:"exit_code"`
	ExecutionStrategy string  `json:"execution_strategy"`
	ElapsedSeconds    float64 `json:"elapsed_seconds"`
	truncation
}

// truncation says how much there was, where it was not all returned.
type truncation struct {
	StdoutBytes     int64  `json:"stdout_bytes"`
	StderrBytes     int64  `json:"stderr_bytes"`
	StdoutTruncated bool   `json:"stdout_truncated"`
	StderrTruncated bool   `json:"stderr_truncated"`
	JobID           string `json:"job_id" jsonschema:"For get_job_output, which reads all of the output piece by piece"`
}

type runWithDepsResult struct {
	runScriptResult
	ResolvedDependencies []string `json:"resolved_dependencies"`
	PythonVersionUsed    string   `json:"python_version_used"`
}

type benchmarkResult struct {
	runWithDepsResult
	WallTimeSeconds float64        `json:"wall_time_seconds"`
	CPUTimeSeconds  float64        `json:"cpu_time_seconds"`
	PeakRSSMB       float64        `json:"peak_rss_mb"`
	MemorySamples   []memorySample `json:"memory_samples"`
}

type memorySample struct {
	Seconds float64 `json:"seconds"`
	MB      float64 `json:"mb"`
}

type asyncJobStart struct {
	JobID             string `json:"job_id"`
	Status            string `json:"status"`
	ExecutionStrategy string `json:"execution_strategy"`
}

type asyncDepsJobStart struct {
	JobID                string   `json:"job_id"`
	Status               string   `json:"status"`
	PythonVersionUsed    string   `json:"python_version_used"`
	ResolvedDependencies []string `json:"resolved_dependencies"`
}

// python is the toolset python.
type python struct {
	*tools
	jobs *jobs
}

func (t *tools) addPython(ctx context.Context) error {
	p := &python{tools: t, jobs: newJobs(ctx, t)}
	t.onClose = append(t.onClose, p.jobs.close)
	net := "The script has no network."
	if t.config.network(ToolsetPython) == executor.NetworkOn {
		net = "The script may use the network."
	}
	where := "The script runs in the folder itself."
	if !p.inPlace() {
		where = "The script runs in a sandbox, on a copy of the folder: what it writes there is not written into the folder; the result links to it."
	}
	of := ""
	if p.inPlace() {
		of = "A script_path runs in the folder that it lies in. "
	}
	add := func(name, title, description string, tags []string, handler server.ToolHandlerFunc, options ...mcp.ToolOption) {
		tool := mcp.NewTool(name, append([]mcp.ToolOption{
			titled(title), mcp.WithDescription(description),
			mcp.WithReadOnlyHintAnnotation(false), mcp.WithIdempotentHintAnnotation(false), mcp.WithDestructiveHintAnnotation(false),
			mcp.WithOpenWorldHintAnnotation(t.config.network(ToolsetPython) == executor.NetworkOn),
		}, options...)...)
		tool.Meta = mcp.NewMetaFromMap(map[string]any{metaTags: tags})
		t.server.AddTool(tool, handler)
	}
	add("run_script_in_dir", "Run a Python script in a folder",
		"Run a Python script (script_path, or source as script_content: exactly one) with a folder as its working directory, and wait for it. "+
			where+" "+net+" timeout_seconds 0 means the server's maximum. An exit code other than 0 is a normal result; -n means killed by signal n.",
		[]string{"execution", "sync"}, p.runInDir,
		inputSchema[runInDirArgs](), outputSchema[runScriptResult](), mcp.WithDestructiveHintAnnotation(p.inPlace()))
	add("run_script_with_dependencies", "Run Python code with packages",
		"Run Python code (script_content, or a file as script_path: exactly one) in an environment that has the named packages, and wait for it. "+
			"Environments are cached, so the same packages are installed once. "+of+net+" timeout_seconds 0 means the server's maximum.",
		[]string{"execution", "dependencies", "sync"}, p.runWithDeps,
		inputSchema[runWithDepsArgs](), outputSchema[runWithDepsResult](), mcp.WithDestructiveHintAnnotation(p.inPlace()))
	add("benchmark_script", "Benchmark Python code",
		"Run Python code as run_script_with_dependencies does and measure it: wall time, CPU time of all its processes, peak memory, and the memory over time. "+of+net,
		[]string{"benchmark", "performance", "sync"}, p.benchmark,
		inputSchema[benchmarkArgs](), outputSchema[benchmarkResult](), mcp.WithDestructiveHintAnnotation(p.inPlace()))
	add("run_script_in_dir_async", "Start a Python script in a folder",
		"Start a script as run_script_in_dir does and return its job_id at once. It runs until it ends, kill_job stops it, or the server's maximum time is over. "+where+" "+net,
		[]string{"execution", "async", "stream"}, p.runInDirAsync,
		inputSchema[runInDirAsyncArgs](), outputSchema[asyncJobStart](), mcp.WithDestructiveHintAnnotation(p.inPlace()))
	add("run_script_with_dependencies_async", "Start Python code with packages",
		"Start code as run_script_with_dependencies does and return its job_id when it runs. It runs until it ends, kill_job stops it, or the server's maximum time is over. "+of+net,
		[]string{"execution", "dependencies", "async", "stream"}, p.runWithDepsAsync,
		inputSchema[runWithDepsAsyncArgs](), outputSchema[asyncDepsJobStart](), mcp.WithDestructiveHintAnnotation(p.inPlace()))
	p.addJobTools(add)
	return nil
}

// inPlace reports whether scripts run in the user's folder itself.
func (p *python) inPlace() bool { return p.backend.Capabilities.HostDirectories && !p.config.Remote }

func (p *python) runInDir(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var a runInDirArgs
	if err := bind(request, &a); err != nil {
		return mcp.NewToolResultError("ValueError: " + err.Error()), nil
	}
	s, err := p.dirScript(ctx, a.dirArgs)
	if err == nil {
		err = s.timeout(a.TimeoutSeconds)
	}
	if err != nil {
		return scriptError(err), nil
	}
	o, elapsed, failure := p.wait(ctx, "run_script_in_dir", s, newProgress(ctx, request))
	if failure != nil {
		return failure, nil
	}
	return structured(p.scriptResult(s, o, elapsed), "", filesOf(o)...)
}

func (p *python) runWithDeps(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var a runWithDepsArgs
	if err := bind(request, &a); err != nil {
		return mcp.NewToolResultError("ValueError: " + err.Error()), nil
	}
	s, err := p.depsScript(ctx, a.depsArgs)
	if err == nil {
		err = s.timeout(a.TimeoutSeconds)
	}
	if err != nil {
		return scriptError(err), nil
	}
	o, elapsed, failure := p.wait(ctx, "run_script_with_dependencies", s, newProgress(ctx, request))
	if failure != nil {
		return failure, nil
	}
	return structured(p.depsResult(s, o, elapsed), "", filesOf(o)...)
}

func (p *python) benchmark(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var a benchmarkArgs
	if err := bind(request, &a); err != nil {
		return mcp.NewToolResultError("ValueError: " + err.Error()), nil
	}
	s, err := p.depsScript(ctx, a.depsArgs)
	if err == nil {
		err = s.timeout(a.TimeoutSeconds)
	}
	interval := 0.05
	if a.SampleInterval != nil {
		interval = *a.SampleInterval
	}
	if err == nil && (interval < 0.01 || interval > 3600) {
		err = valueError("sample_interval must be between 0.01 and 3600 seconds (got %v)", interval)
	}
	if err != nil {
		return scriptError(err), nil
	}
	if p.backend.Capabilities.MemorySamples {
		s.spec.SampleInterval = time.Duration(interval * float64(time.Second))
	}
	o, elapsed, failure := p.wait(ctx, "benchmark_script", s, newProgress(ctx, request))
	if failure != nil {
		return failure, nil
	}
	out := benchmarkResult{
		runWithDepsResult: p.depsResult(s, o, elapsed),
		WallTimeSeconds:   o.result.Wall.Seconds(), CPUTimeSeconds: max(0, o.result.CPU.Seconds()),
		PeakRSSMB: float64(o.result.PeakMemoryBytes) / (1 << 20), MemorySamples: []memorySample{},
	}
	for _, m := range o.result.MemorySamples {
		out.MemorySamples = append(out.MemorySamples, memorySample{m.Offset.Seconds(), float64(m.Bytes) / (1 << 20)})
	}
	return structured(out, "", filesOf(o)...)
}

func (p *python) runInDirAsync(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var a runInDirAsyncArgs
	if err := bind(request, &a); err != nil {
		return mcp.NewToolResultError("ValueError: " + err.Error()), nil
	}
	s, err := p.dirScript(ctx, a.dirArgs)
	if err != nil {
		return scriptError(err), nil
	}
	j, err := p.start(ctx, s, a.Stream)
	if err != nil {
		return p.toolError("run_script_in_dir_async", err, scriptNames), nil
	}
	return structured(asyncJobStart{JobID: j.id, Status: "started", ExecutionStrategy: s.strategy}, "")
}

func (p *python) runWithDepsAsync(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var a runWithDepsAsyncArgs
	if err := bind(request, &a); err != nil {
		return mcp.NewToolResultError("ValueError: " + err.Error()), nil
	}
	s, err := p.depsScript(ctx, a.depsArgs)
	if err != nil {
		return scriptError(err), nil
	}
	progress := newProgress(ctx, request)
	j, err := p.start(ctx, s, a.Stream)
	if err != nil {
		return p.toolError("run_script_with_dependencies_async", err, scriptNames), nil
	}
	progress.say("preparing", true)
	out := asyncDepsJobStart{JobID: j.id, Status: "started", PythonVersionUsed: a.PythonVersion, ResolvedDependencies: []string{}}
	timer := time.NewTimer(startWait)
	defer timer.Stop()
	select {
	case <-j.begun:
	case <-timer.C: // it is still being prepared; what is known stands in get_job_output's end
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	now := j.now()
	if f := now.result; f != nil && !ran(*f) {
		p.jobs.remove(j.id)
		return s.failed(f), nil
	}
	if now.started != nil {
		out.PythonVersionUsed = now.started.PythonVersion
		out.ResolvedDependencies = append(out.ResolvedDependencies, now.started.Requirements...)
	}
	return structured(out, "")
}

// wait runs s to its end. A failure that is not the script's own is a tool result that says what to change.
func (p *python) wait(ctx context.Context, tool string, s *script, progress *progress) (*outcome, time.Duration, *mcp.CallToolResult) {
	began := time.Now()
	o, err := p.run(s.ctx(ctx), s.spec, s.input, progress, p.config.MaxResultBytes)
	if err != nil {
		return nil, 0, p.toolError(tool, err, scriptNames)
	}
	if !ran(o.result) {
		return nil, 0, s.failed(&o.result)
	}
	return o, time.Since(began), nil
}

// failed explains a script that did not get to run.
func (s *script) failed(r *executor.Result) *mcp.CallToolResult {
	f := r.Failure
	field, message := failure(f, scriptNames)
	text := fmt.Sprintf("Error: %s: %s", f.Phase, message)
	// A server elsewhere does not name the field.
	unnamed := field == "" && f.Phase == executor.PhasePrepare && f.Code == executor.Invalid && s.spec.Requirements != ""
	if field == "requirements_txt" || unnamed {
		text += "\nChange dependencies."
	}
	return mcp.NewToolResultError(text)
}

func (p *python) scriptResult(s *script, o *outcome, elapsed time.Duration) runScriptResult {
	where := restOf(o.id)
	out := runScriptResult{
		Stdout: o.stdout.text(where), Stderr: o.stderr.text(where), ExitCode: exitCode(o.result),
		ExecutionStrategy: s.strategy, ElapsedSeconds: elapsed.Seconds(),
		truncation: truncation{
			StdoutBytes: o.result.StdoutBytes, StderrBytes: o.result.StderrBytes,
			StdoutTruncated: o.stdout.truncated() || o.result.StdoutTruncated,
			StderrTruncated: o.stderr.truncated() || o.result.StderrTruncated,
			JobID:           o.id,
		},
	}
	out.Stderr += suffix(o.result.Status)
	return out
}

// restOf says where the rest of long output is read.
func restOf(id string) string {
	return fmt.Sprintf("; get_job_output(job_id=%q, …_offset) reads them", id)
}

// suffix ends the stderr of a script that a limit has stopped.
func suffix(s executor.Status) string {
	switch s {
	case executor.StatusTimedOut:
		return timeoutSuffix
	case executor.StatusOutOfMemory:
		return "[OUT OF MEMORY]"
	}
	return ""
}

func (p *python) depsResult(s *script, o *outcome, elapsed time.Duration) runWithDepsResult {
	return runWithDepsResult{
		runScriptResult:      p.scriptResult(s, o, elapsed),
		ResolvedDependencies: append([]string{}, o.result.Requirements...),
		PythonVersionUsed:    o.result.PythonVersion,
	}
}

// valueErr is an error whose text begins as Python's would, which is what the specification promises.
type valueErr struct{ kind, message string }

func (e *valueErr) Error() string { return e.kind + ": " + e.message }

func valueError(format string, args ...any) error {
	return &valueErr{"ValueError", fmt.Sprintf(format, args...)}
}

func notFoundError(format string, args ...any) error {
	return &valueErr{"FileNotFoundError", fmt.Sprintf(format, args...)}
}

func scriptError(err error) *mcp.CallToolResult { return mcp.NewToolResultError(err.Error()) }

// text is v as JSON, for results whose structured form is wrapped.
func text(v any) string {
	raw, err := plainJSON(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(string(raw))
}
