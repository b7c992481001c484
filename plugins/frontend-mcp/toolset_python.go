package mcpfrontend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/hostpath"
)

// The execution strategies. Their names are from the specification and do not depend on how the backend starts a program.
const (
	strategyUV     = "uv-run"
	strategySystem = "system-python"
)

// timeoutSuffix is appended to the stderr of a script that has reached its time limit.
const timeoutSuffix = "[TIMEOUT]"

const (
	// defaultTimeoutSeconds is the default timeout of the sync tools.
	defaultTimeoutSeconds = 300
	// defaultSampleInterval is the default of sample_interval, in seconds.
	defaultSampleInterval = 0.05
)

// scriptNames maps the fields of a Spec to the arguments of the toolset.
var scriptNames = map[string]string{
	"code": "script_content", "config.timeout_seconds": "timeout_seconds", executor.FieldCPUTime: "cpu_seconds", "entrypoint": "script_path", "host_directory": "directory",
	"requirements_txt": "dependencies", "sample_interval_seconds": "sample_interval",
}

type dirArgs struct {
	Directory     string   `json:"directory"`
	ScriptPath    *string  `json:"script_path,omitempty" jsonschema:"Absolute or in directory; this or script_content"`
	ScriptContent *string  `json:"script_content,omitempty"`
	Args          []string `json:"args,omitempty"`
	UseUV         *bool    `json:"use_uv,omitempty" jsonschema:"With the packages of the PEP 723 block, else of requirements.txt, uv.lock or pyproject.toml; false: the system's python"`
	PythonVersion *string  `json:"python_version,omitempty"`
}

type depsArgs struct {
	ScriptContent *string  `json:"script_content,omitempty"`
	ScriptPath    *string  `json:"script_path,omitempty" jsonschema:"This or script_content"`
	PythonVersion string   `json:"python_version,omitempty"`
	Dependencies  []string `json:"dependencies,omitempty" jsonschema:"Like numpy>=2"`
	Args          []string `json:"args,omitempty"`
}

type syncArgs struct {
	TimeoutSeconds *int64 `json:"timeout_seconds,omitempty" jsonschema:"0: the server's maximum"`
	cpuArgs
}

type asyncArgs struct {
	Stream bool `json:"stream,omitempty"`
	cpuArgs
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
	SampleInterval *float64 `json:"sample_interval,omitempty" jsonschema:"Seconds, at least 0.01"`
}

// runScriptResult is what run_script_in_dir returns.
type runScriptResult struct {
	Stdout            string  `json:"stdout"`
	Stderr            string  `json:"stderr"`
	ExitCode          int     `json:"exit_code"`
	ExecutionStrategy string  `json:"execution_strategy"`
	ElapsedSeconds    float64 `json:"elapsed_seconds"`
	Hint              string  `json:"hint,omitempty"`
	truncation
}

// truncation tells how much output there was and whether some of it was left out.
type truncation struct {
	StdoutBytes     int64  `json:"stdout_bytes"`
	StderrBytes     int64  `json:"stderr_bytes"`
	StdoutTruncated bool   `json:"stdout_truncated"`
	StderrTruncated bool   `json:"stderr_truncated"`
	JobID           string `json:"job_id"`
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

// asyncDepsJobStart is what run_script_with_dependencies_async returns at once, while the packages are installed.
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
	// open are Config.Directories without links.
	open []string
}

func (t *tools) startPython(ctx context.Context) func() {
	p := &python{tools: t, jobs: newJobs(ctx, t), open: hostpath.Real(t.config.Directories)}
	t.onClose = append(t.onClose, p.jobs.close)
	p.server.AddResourceTemplate(mcp.NewResourceTemplate(jobScheme+"{job_id}{?offset}", "job output",
		mcp.WithTemplateDescription("What a job has written so far. With offset, the number after ---OFFSET--- of the reading before, only what came since."),
		mcp.WithTemplateMIMEType("text/plain")), p.readStream)
	return p.add
}

// add adds the tools.
func (p *python) add() {
	t := p.tools
	net := " " + networkText(t.config.network(ToolsetPython))
	where := "It runs in the folder itself."
	if limits := t.backend().Details[hostDirectories]; limits != "" {
		where = "It runs in the folder itself, which is " + limits + "; $TMPDIR is writable."
	}
	if !p.inPlace() {
		where = "It runs on a copy of the folder; files that it writes come as links."
	}
	of := ""
	if p.inPlace() {
		of = " A script_path runs in its own folder."
	}
	script := tool{destructive: p.inPlace(), closed: t.config.network(ToolsetPython) != executor.NetworkOn}
	describe := func(name, like, description string, tags ...string) tool {
		d := script
		d.name, d.like, d.description, d.tags = name, like, description, tags
		return d
	}
	addTool[runInDirArgs, runScriptResult](t, describe("run_script_in_dir", "",
		"Run a Python script in a folder and wait. "+where+net, "execution", "sync"), badValue, p.runInDir)
	addTool[runWithDepsArgs, runWithDepsResult](t, describe("run_script_with_dependencies", "",
		"Run Python code with packages and wait. Environments are cached."+of+net, "execution", "dependencies", "sync"), badValue, p.runWithDeps)
	addTool[benchmarkArgs, benchmarkResult](t, describe("benchmark_script", "run_script_with_dependencies",
		"As run_script_with_dependencies, and measure time and memory.", "benchmark", "performance", "sync"), badValue, p.benchmark)
	addTool[runInDirAsyncArgs, asyncJobStart](t, describe("run_script_in_dir_async", "run_script_in_dir",
		"As run_script_in_dir, but as a job without a timeout.", "execution", "async", "stream"), badValue, p.runInDirAsync)
	addTool[runWithDepsAsyncArgs, asyncDepsJobStart](t, describe("run_script_with_dependencies_async", "run_script_with_dependencies",
		"As run_script_with_dependencies, but as a job without a timeout.", "execution", "dependencies", "async", "stream"), badValue, p.runWithDepsAsync)
	p.addJobTools()
}

// inPlace reports whether scripts run in the user's folder itself.
func (p *python) inPlace() bool { return p.backend().Capabilities.HostDirectories && !p.config.Remote }

func (p *python) runInDir(ctx context.Context, request mcp.CallToolRequest, a runInDirArgs) (*mcp.CallToolResult, error) {
	s, err := p.dirScript(a.dirArgs)
	defer s.close()
	if err == nil {
		err = s.limits(a.syncArgs)
	}
	if err != nil {
		return scriptError(err), nil
	}
	return p.wait(ctx, request, s, func(o *outcome, elapsed time.Duration) any { return s.result(o, elapsed) })
}

func (p *python) runWithDeps(ctx context.Context, request mcp.CallToolRequest, a runWithDepsArgs) (*mcp.CallToolResult, error) {
	s, err := p.depsScript(a.depsArgs)
	if err == nil {
		err = s.limits(a.syncArgs)
	}
	if err != nil {
		return scriptError(err), nil
	}
	return p.wait(ctx, request, s, func(o *outcome, elapsed time.Duration) any { return s.depsResult(o, elapsed) })
}

func (p *python) benchmark(ctx context.Context, request mcp.CallToolRequest, a benchmarkArgs) (*mcp.CallToolResult, error) {
	s, err := p.depsScript(a.depsArgs)
	if err == nil {
		err = s.limits(a.syncArgs)
	}
	interval := defaultSampleInterval
	if a.SampleInterval != nil {
		interval = *a.SampleInterval
	}
	if err == nil && (interval < 0.01 || interval > 3600) {
		err = valueError("sample_interval must be between 0.01 and 3600 seconds (got %v)", interval)
	}
	if err != nil {
		return scriptError(err), nil
	}
	if p.backend().Capabilities.MemorySamples {
		s.spec.SampleInterval = time.Duration(interval * float64(time.Second))
	}
	return p.wait(ctx, request, s, func(o *outcome, elapsed time.Duration) any {
		out := benchmarkResult{
			runWithDepsResult: s.depsResult(o, elapsed),
			WallTimeSeconds:   o.result.Wall.Seconds(), CPUTimeSeconds: max(0, o.result.CPU.Seconds()),
			PeakRSSMB: float64(cmp.Or(o.result.PeakResidentBytes, o.result.PeakMemoryBytes)) / (1 << 20), MemorySamples: []memorySample{},
		}
		for _, m := range o.result.MemorySamples {
			out.MemorySamples = append(out.MemorySamples, memorySample{m.Offset.Seconds(), float64(m.Bytes) / (1 << 20)})
		}
		return out
	})
}

func (p *python) runInDirAsync(ctx context.Context, _ mcp.CallToolRequest, a runInDirAsyncArgs) (*mcp.CallToolResult, error) {
	s, err := p.dirScript(a.dirArgs)
	defer s.close()
	if err == nil {
		err = s.bound(a.cpuArgs)
	}
	if err != nil {
		return scriptError(err), nil
	}
	j, err := p.start(ctx, s, a.Stream)
	if err != nil {
		return p.typedError("run_script_in_dir_async", err), nil
	}
	return structured(asyncJobStart{JobID: j.id, Status: "started", ExecutionStrategy: s.strategy}, "")
}

func (p *python) runWithDepsAsync(ctx context.Context, _ mcp.CallToolRequest, a runWithDepsAsyncArgs) (*mcp.CallToolResult, error) {
	s, err := p.depsScript(a.depsArgs)
	if err == nil {
		err = s.bound(a.cpuArgs)
	}
	if err != nil {
		return scriptError(err), nil
	}
	j, err := p.start(ctx, s, a.Stream)
	if err != nil {
		return p.typedError("run_script_with_dependencies_async", err), nil
	}
	return structured(asyncDepsJobStart{
		JobID: j.id, Status: "started", PythonVersionUsed: a.PythonVersion, ResolvedDependencies: append([]string{}, a.Dependencies...),
	}, "")
}

// wait runs s to its end and returns what result makes of it. If the script did not run, the result says what to change.
func (p *python) wait(ctx context.Context, request mcp.CallToolRequest, s *script, result func(o *outcome, elapsed time.Duration) any) (*mcp.CallToolResult, error) {
	began := time.Now()
	progress := newProgress(ctx, request)
	o, err := p.run(ctx, s.spec, s.input, progress, p.config.MaxResultBytes)
	if e, ok := errors.AsType[*executor.Error](err); ok && s.defaulted && len(e.Fields) == 1 && e.Fields[0].Field == "config.timeout_seconds" {
		s.spec.Limits.Timeout = executor.TimeoutMaximum // which is less than the tool's default
		o, err = p.run(ctx, s.spec, s.input, progress, p.config.MaxResultBytes)
	}
	if err != nil {
		return p.typedError(request.Params.Name, err), nil
	}
	if !ran(o.result) {
		return s.failed(&o.result), nil
	}
	return structured(result(o, time.Since(began)), "", filesOf(o)...)
}

// failed returns the result for a script that did not run.
func (s *script) failed(r *executor.Result) *mcp.CallToolResult {
	f := r.Failure
	field, message := failure(f, scriptNames)
	text := fmt.Sprintf("%s: %s: %s", errorType(f.Code), f.Phase, message)
	// A remote server does not send the field.
	unnamed := field == "" && f.Phase == executor.PhasePrepare && f.Code == executor.Invalid && s.spec.Requirements != ""
	if field == "requirements_txt" || unnamed {
		text += "\nChange dependencies."
	}
	return mcp.NewToolResultError(text)
}

func (s *script) result(o *outcome, elapsed time.Duration) runScriptResult {
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
	if line := s.advice.pipInstead(s.content, out.Stderr); line != "" {
		out.Stderr = line
	} else {
		out.Hint = cmp.Or(limitReached(o.result, "timeout_seconds"), s.advice.hint(s.content, out.Stdout, out.Stderr, o.result))
	}
	out.Stderr += suffix(o.result)
	return out
}

// restOf tells how to read the rest of long output. It is an addition to the note of tail.text.
func restOf(id string) string {
	return fmt.Sprintf("; get_job_output(job_id=%q, …_offset) reads them", id)
}

// suffix returns the text that is appended to the stderr of a script that a limit has stopped.
func suffix(r executor.Result) string {
	limit := r.HitLimit()
	switch {
	case r.Status == executor.StatusTimedOut:
		return timeoutSuffix
	case limit != nil && limit.Field == "config.disk_mb":
		return "[DISK FULL]"
	case r.Status == executor.StatusOutOfMemory || limit != nil:
		return "[OUT OF MEMORY]"
	}
	return ""
}

func (s *script) depsResult(o *outcome, elapsed time.Duration) runWithDepsResult {
	return runWithDepsResult{
		runScriptResult:      s.result(o, elapsed),
		ResolvedDependencies: append([]string{}, o.result.Requirements...),
		PythonVersionUsed:    o.result.PythonVersion,
	}
}

// valueErr is an error whose text begins with the name of a Python exception, as the specification prescribes.
type valueErr struct{ kind, message string }

func (e *valueErr) Error() string { return e.kind + ": " + e.message }

func valueError(format string, args ...any) error {
	return &valueErr{"ValueError", fmt.Sprintf(format, args...)}
}

func notFoundError(format string, args ...any) error {
	return &valueErr{"FileNotFoundError", fmt.Sprintf(format, args...)}
}

// errorType returns the type of an error in the table of the specification.
func errorType(code executor.Code) string {
	switch code {
	case executor.Invalid, executor.Unimplemented, executor.Conflict, executor.NotFound, executor.Purged:
		return "ValueError"
	}
	return "OSError"
}

// typedError is toolError with the type of the error before the message.
func (p *python) typedError(what string, err error) *mcp.CallToolResult {
	if executor.CodeOf(err) == executor.Internal {
		p.log.Error("tool failed", "tool", what, "error", err)
		return mcp.NewToolResultError("OSError: internal error; the server's log says more")
	}
	return mcp.NewToolResultError(errorType(executor.CodeOf(err)) + ": " + argumentError(err, scriptNames).Error())
}

// badValue returns the result for arguments that cannot be read.
func badValue(err error) *mcp.CallToolResult {
	return mcp.NewToolResultError("ValueError: " + err.Error())
}

func scriptError(err error) *mcp.CallToolResult { return mcp.NewToolResultError(err.Error()) }

// text returns v as JSON.
func text(v any) string {
	raw, err := plainJSON(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(raw)
}
