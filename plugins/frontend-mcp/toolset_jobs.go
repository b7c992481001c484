package mcpfrontend

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/python-executor/python-executor/core/executor"
)

type listJobsArgs struct{}

// jobInfo is one job of list_running_jobs. The specification prescribes that every value is text.
type jobInfo struct {
	JobID          string `json:"job_id"`
	Running        string `json:"running"`
	ExitCode       string `json:"exit_code"`
	PID            string `json:"pid"`
	ElapsedSeconds string `json:"elapsed_seconds"`
	Stream         string `json:"stream"`
	StdoutChunks   string `json:"stdout_chunks"`
	StderrChunks   string `json:"stderr_chunks"`
}

// jobList wraps the list, because structured content must be an object.
type jobList struct {
	Result []jobInfo `json:"result"`
}

type jobOutputArgs struct {
	JobID        string `json:"job_id"`
	StdoutOffset *int64 `json:"stdout_offset,omitempty" jsonschema:"The last next_stdout_offset"`
	StderrOffset *int64 `json:"stderr_offset,omitempty"`
}

type jobOutput struct {
	Status           string `json:"status"`
	Stdout           string `json:"stdout"`
	Stderr           string `json:"stderr"`
	ExitCode         string `json:"exit_code"`
	ElapsedSeconds   string `json:"elapsed_seconds"`
	StdoutBytes      int64  `json:"stdout_bytes"`
	StderrBytes      int64  `json:"stderr_bytes"`
	StdoutTruncated  bool   `json:"stdout_truncated"`
	StderrTruncated  bool   `json:"stderr_truncated"`
	NextStdoutOffset int64  `json:"next_stdout_offset"`
	NextStderrOffset int64  `json:"next_stderr_offset"`
	Error            string `json:"error,omitempty"`
	Hint             string `json:"hint,omitempty"`
	// PythonVersionUsed and ResolvedDependencies are known when the script runs.
	PythonVersionUsed    string   `json:"python_version_used,omitempty"`
	ResolvedDependencies []string `json:"resolved_dependencies,omitempty"`
}

type killJobArgs struct {
	JobID string `json:"job_id"`
}

type killJobResult struct {
	JobID    string `json:"job_id"`
	Status   string `json:"status"`
	ExitCode string `json:"exit_code"`
	Message  string `json:"message,omitempty"`
}

type jobCleanupArgs struct {
	JobID string `json:"job_id,omitempty" jsonschema:"Default: all"`
}

type jobCleanupResult struct {
	Removed []string `json:"removed"`
	Running []string `json:"running"`
}

// jobScheme is the URI scheme of a job's resource.
const jobScheme = "job-stream://"

// errNoJob returns the result for an unknown job.
func errNoJob(id string) *mcp.CallToolResult {
	return mcp.NewToolResultErrorf("ValueError: job %q not found: list_running_jobs shows the jobs", id)
}

func (p *python) addJobTools() {
	addTool[listJobsArgs, jobList](p.tools, tool{
		name: "list_running_jobs", tags: []string{"jobs", "introspection"}, readOnly: true,
		description: "List jobs, also finished ones, oldest first.",
	}, badValue, p.listJobs)
	addTool[jobOutputArgs, jobOutput](p.tools, tool{
		name: "get_job_output", tags: []string{"jobs", "introspection"}, readOnly: true,
		description: "Read a job's output so far, or from an offset on.",
	}, badValue, p.getOutput)
	addTool[killJobArgs, killJobResult](p.tools, tool{
		name: "kill_job", tags: []string{"jobs", "control"}, destructive: true, idempotent: true,
		description: "Stop a job and all it started.",
	}, badValue, p.killJob)
	addTool[jobCleanupArgs, jobCleanupResult](p.tools, tool{
		name: "job_cleanup", tags: []string{"jobs", "control"}, idempotent: true,
		description: "Remove finished jobs from the list.",
	}, badValue, p.cleanup)
}

// pythonBool formats a boolean as the specification prescribes.
func pythonBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

func secondsText(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }

// exitText returns an exit code as text. It is "None" for a job that has not ended or has never started.
func exitText(r *executor.Result) string {
	if r == nil || r.ExitCode == nil && r.Signal == "" {
		return "None"
	}
	return strconv.Itoa(exitCode(*r))
}

func (p *python) listJobs(ctx context.Context, _ mcp.CallToolRequest, _ listJobsArgs) (*mcp.CallToolResult, error) {
	out := jobList{Result: []jobInfo{}}
	p.adopt(ctx)
	for _, j := range p.jobs.of(executor.PrincipalFrom(ctx).Owner) {
		s := j.now()
		pid := "None"
		if s.started != nil && s.started.PID > 0 {
			pid = strconv.Itoa(s.started.PID)
		}
		out.Result = append(out.Result, jobInfo{
			JobID: j.id, Running: pythonBool(s.result == nil), ExitCode: exitText(s.result), PID: pid,
			ElapsedSeconds: secondsText(j.elapsed()), Stream: pythonBool(j.stream),
			StdoutChunks: strconv.Itoa(s.stdoutChunks), StderrChunks: strconv.Itoa(s.stderrChunks),
		})
	}
	return structured(out, text(out.Result))
}

func (p *python) getOutput(ctx context.Context, _ mcp.CallToolRequest, a jobOutputArgs) (*mcp.CallToolResult, error) {
	for name, offset := range map[string]*int64{"stdout_offset": a.StdoutOffset, "stderr_offset": a.StderrOffset} {
		if offset != nil && *offset < 0 {
			return mcp.NewToolResultErrorf("ValueError: %s must not be negative (got %d)", name, *offset), nil
		}
	}
	x, err := p.svc.Get(ctx, a.JobID)
	if err != nil {
		return p.jobError("get_job_output", a.JobID, err), nil
	}
	stdout, stderr := newWindow(a.StdoutOffset, p.config.MaxResultBytes), newWindow(a.StderrOffset, p.config.MaxResultBytes)
	if _, err := p.replay(ctx, x, 0, stdout, stderr); err != nil {
		return p.jobError("get_job_output", a.JobID, err), nil
	}
	hint := "; read them with stdout_offset and stderr_offset"
	outText, errText := stdout.text(hint), stderr.text(hint) // text must be called before next is read
	out := jobOutput{
		Status: "running", Stdout: outText, Stderr: errText, ExitCode: exitText(x.Result),
		ElapsedSeconds: secondsText(elapsed(x)), StdoutBytes: x.StdoutBytes, StderrBytes: x.StderrBytes,
		StdoutTruncated: stdout.cut(), StderrTruncated: stderr.cut(),
		NextStdoutOffset: stdout.next, NextStderrOffset: stderr.next,
	}
	if x.Started != nil {
		out.PythonVersionUsed, out.ResolvedDependencies = x.Started.PythonVersion, x.Started.Requirements
	}
	var files []mcp.Content
	if r := x.Result; r != nil {
		files = artifacts(x.ID, *r)
		out.Status = "finished"
		out.StdoutBytes, out.StderrBytes = r.StdoutBytes, r.StderrBytes
		out.StdoutTruncated, out.StderrTruncated = out.StdoutTruncated || r.StdoutTruncated, out.StderrTruncated || r.StderrTruncated
		if !ran(*r) {
			out.Error = fmt.Sprintf("%s: %s: %s", errorType(r.Failure.Code), r.Failure.Phase, r.Failure.Message)
		}
		if !stderr.cut() || stderr.whole != nil { // only at the end of stderr
			out.Stderr += suffix(*r)
		}
		argument := "timeout_seconds"
		if x.Spec.Limits.Timeout == executor.TimeoutMaximum {
			argument = ""
		}
		out.Hint = limitReached(*r, argument)
		if x.Spec.Session == "" {
			out.Hint = cmp.Or(out.Hint, p.advice(ToolsetPython, addDependencies).hint(x.Spec.Code, out.Stdout, out.Stderr, *r))
		}
	}
	return structured(out, "", files...)
}

// elapsed returns how long an Execution has existed, or how long it took if it has ended.
func elapsed(x executor.Execution) time.Duration {
	if !x.FinishedAt.IsZero() {
		return x.FinishedAt.Sub(x.CreatedAt)
	}
	if x.CreatedAt.IsZero() {
		return 0
	}
	return time.Since(x.CreatedAt)
}

// jobError returns the answer to an error of the Service about a job.
func (p *python) jobError(tool, id string, err error) *mcp.CallToolResult {
	switch executor.CodeOf(err) {
	case executor.NotFound, executor.Purged:
		return errNoJob(id)
	}
	return p.typedError(tool, err)
}

// replay adds every Output of x after Seq after to the window of its stream. It stops at x.LastSeq, so output that came after x
// was read is not included. For a remote server, which does not send LastSeq, it stops when it has read as many bytes of both
// streams as x counts. It returns the last Seq that it has read.
func (p *python) replay(ctx context.Context, x executor.Execution, after uint64, stdout, stderr *window) (last uint64, err error) {
	remote := x.LastSeq == 0
	if last = max(after, x.LastSeq); !remote && after >= x.LastSeq {
		return last, nil
	}
	from := after
	if remote {
		from = 0 // the bytes before after count, too
	}
	var read struct{ stdout, stderr int64 }
	for e, err := range p.svc.Events(ctx, x.ID, from) {
		if err != nil {
			return last, err
		}
		if o, ok := e.Body.(executor.Output); ok {
			w, n := stdout, &read.stdout
			if o.Stream == executor.Stderr {
				w, n = stderr, &read.stderr
			}
			if *n = o.Offset + int64(len(o.Data)); e.Seq > after {
				w.add(o)
			}
		}
		last = max(last, e.Seq)
		if !remote && e.Seq >= x.LastSeq || remote && !x.Status.Terminal() && read.stdout >= x.StdoutBytes && read.stderr >= x.StderrBytes {
			break
		}
	}
	return last, nil
}

func (p *python) killJob(ctx context.Context, _ mcp.CallToolRequest, a killJobArgs) (*mcp.CallToolResult, error) {
	before, beforeErr := p.svc.Get(ctx, a.JobID)
	ended := beforeErr == nil && before.Status.Terminal()
	x, err := p.svc.Cancel(ctx, a.JobID)
	if err == nil && x.Result == nil {
		x, err = p.svc.Get(ctx, a.JobID) // a remote server returns the status only
	}
	if err != nil {
		return p.jobError("kill_job", a.JobID, err), nil
	}
	out := killJobResult{JobID: a.JobID, Status: "killed", ExitCode: exitText(x.Result)}
	if x.Status != executor.StatusKilled {
		out.Status = "finished"
		out.Message = "the job had ended before it could be killed: " + string(x.Status)
	}
	if !ended && x.Status == executor.StatusKilled {
		p.log.Info("job killed", "execution", a.JobID)
	}
	return structured(out, "")
}

func (p *python) cleanup(ctx context.Context, _ mcp.CallToolRequest, a jobCleanupArgs) (*mcp.CallToolResult, error) {
	out := jobCleanupResult{Removed: []string{}, Running: []string{}}
	for _, j := range p.jobs.of(executor.PrincipalFrom(ctx).Owner) {
		switch {
		case a.JobID != "" && j.id != a.JobID:
		case j.now().result == nil:
			out.Running = append(out.Running, j.id)
		default:
			p.jobs.remove(j.id)
			out.Removed = append(out.Removed, j.id)
		}
	}
	if a.JobID != "" && len(out.Removed)+len(out.Running) == 0 {
		return errNoJob(a.JobID), nil
	}
	return structured(out, "")
}

// readStream reads the resource job-stream://{job_id}{?offset}. The offset is the Seq of an Event.
func (p *python) readStream(ctx context.Context, request mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
	id, after, err := parseJobURI(request.Params.URI)
	if err != nil {
		return nil, err
	}
	x, err := p.svc.Get(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("job %q: %w", id, server.ErrResourceNotFound)
	}
	stdout, stderr := newWindow(nil, p.config.MaxResultBytes), newWindow(nil, p.config.MaxResultBytes)
	last, err := p.replay(ctx, x, after, stdout, stderr)
	if err != nil {
		return nil, err
	}
	hint := "; get_job_output reads them"
	content := "---STDOUT---\n" + stdout.text(hint) + "\n---STDERR---\n" + stderr.text(hint)
	if strings.Contains(request.Params.URI, "?") {
		content += "\n---OFFSET---\n" + strconv.FormatUint(last, 10)
	}
	return []mcp.ResourceContents{mcp.TextResourceContents{URI: request.Params.URI, MIMEType: "text/plain", Text: content}}, nil
}

// parseJobURI returns the job and the offset of a job's URI. Codes: invalid.
func parseJobURI(uri string) (id string, after uint64, err error) {
	rest, ok := strings.CutPrefix(uri, jobScheme)
	if !ok {
		return "", 0, fmt.Errorf("%s: %w", uri, server.ErrResourceNotFound)
	}
	id, query, _ := strings.Cut(rest, "?")
	offset, err := offsetOf(query)
	return id, uint64(offset), err //nolint:gosec // not negative
}

// window is the part of a stream that a tool returns, at most limit bytes. With an offset it is the bytes from there on.
// Without an offset it is the beginning and the end of the stream.
type window struct {
	from  int64
	whole *tail // nil with an offset
	limit int
	data  []byte
	end   int64 // the length of the stream so far
	next  int64 // the offset to continue from
}

func newWindow(offset *int64, limit int) *window {
	if offset == nil {
		return &window{whole: &tail{limit: limit}, limit: limit}
	}
	return &window{from: *offset, next: *offset, limit: limit}
}

func (w *window) add(o executor.Output) {
	w.end = o.Offset + int64(len(o.Data))
	if w.whole != nil {
		w.whole.add(o.Data)
		w.next = w.end
		return
	}
	data, at := o.Data, o.Offset
	if skip := w.next - at; skip > 0 {
		if skip >= int64(len(data)) {
			return
		}
		data, at = data[skip:], at+skip
	}
	if room := w.limit - len(w.data); room < len(data) {
		data = data[:room]
	}
	if at == w.next { // data after a gap is left out, because the client could not see the gap
		w.data = append(w.data, data...)
		w.next += int64(len(data))
	}
}

// cut reports whether the stream has bytes that are left out.
func (w *window) cut() bool {
	if w.whole != nil {
		return w.whole.truncated()
	}
	return w.next < w.end
}

// text returns the window as text. It moves next back to the beginning of an incomplete last character.
func (w *window) text(hint string) string {
	if w.whole != nil {
		return w.whole.text(hint)
	}
	text := string(w.data)
	if w.cut() { // an incomplete character belongs to the next window
		whole := trimPartialRune(text)
		w.next -= int64(len(text) - len(whole))
		text = whole
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
