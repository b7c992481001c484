package mcpfrontend

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/python-executor/python-executor/core/executor"
)

type listJobsArgs struct{}

// jobInfo is one job of list_running_jobs: everything is text, as its specification has it.
type jobInfo struct {
	JobID          string `json:"job_id" jsonschema:"Id of a job"`
	Running        string `json:"running"`
	ExitCode       string `json:"exit_code"`
	PID            string `json:"pid"`
	ElapsedSeconds string `json:"elapsed_seconds"`
	Stream         string `json:"stream"`
	StdoutChunks   string `json:"stdout_chunks"`
	StderrChunks   string `json:"stderr_chunks"`
}

// jobList wraps a list: structured content must be an object.
type jobList struct {
	Result []jobInfo `json:"result"`
}

type jobOutputArgs struct {
	JobID        string `json:"job_id" jsonschema:"Id of a job"`
	StdoutOffset *int64 `json:"stdout_offset,omitempty" jsonschema:"Return stdout from this byte on: next_stdout_offset of the answer before"`
	StderrOffset *int64 `json:"stderr_offset,omitempty" jsonschema:"Return stderr from this byte on: next_stderr_offset of the answer before"`
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
	Error            string `json:"error,omitempty" jsonschema:"Why the script did not get to run"`
}

type killJobArgs struct {
	JobID string `json:"job_id" jsonschema:"Id of a job"`
}

type killJobResult struct {
	JobID    string `json:"job_id" jsonschema:"Id of a job"`
	Status   string `json:"status"`
	ExitCode string `json:"exit_code"`
}

type jobCleanupArgs struct {
	JobID string `json:"job_id,omitempty" jsonschema:"A finished job; default: all that have finished"`
}

type jobCleanupResult struct {
	Removed []string `json:"removed"`
	Running []string `json:"running"`
}

// jobScheme begins the resource of a job.
const jobScheme = "job-stream://"

// errNoJob says that there is no such job, in the words of a tool result.
func errNoJob(id string) *mcp.CallToolResult {
	return mcp.NewToolResultErrorf("Error: job %q not found: list_running_jobs shows the jobs", id)
}

type addTool func(name, title, description string, tags []string, handler server.ToolHandlerFunc, options ...mcp.ToolOption)

func (p *python) addJobTools(add addTool) {
	reads := []mcp.ToolOption{
		mcp.WithReadOnlyHintAnnotation(true), mcp.WithIdempotentHintAnnotation(true), mcp.WithOpenWorldHintAnnotation(false),
	}
	add("list_running_jobs", "List jobs", "List the jobs that the async tools have started, finished ones too, oldest first. Every value is text.",
		[]string{"jobs", "introspection"}, p.listJobs,
		append(slices.Clone(reads), inputSchema[listJobsArgs](), outputSchema[jobList]())...)
	add("get_job_output", "Read a job's output",
		"Read what a job has written so far, or all of it when it has finished. Long output is cut; with stdout_offset and stderr_offset it is read piece by piece.",
		[]string{"jobs", "introspection"}, p.getOutput,
		append(slices.Clone(reads), inputSchema[jobOutputArgs](), outputSchema[jobOutput]())...)
	add("kill_job", "Kill a job", "Stop a job and everything it has started, and wait until it is gone.",
		[]string{"jobs", "control"}, p.killJob,
		inputSchema[killJobArgs](), outputSchema[killJobResult](),
		mcp.WithDestructiveHintAnnotation(true), mcp.WithIdempotentHintAnnotation(true), mcp.WithOpenWorldHintAnnotation(false))
	add("job_cleanup", "Forget finished jobs", "Remove finished jobs from the list. Running ones stay.",
		[]string{"jobs", "control"}, p.cleanup,
		inputSchema[jobCleanupArgs](), outputSchema[jobCleanupResult](),
		mcp.WithIdempotentHintAnnotation(true), mcp.WithOpenWorldHintAnnotation(false))
	p.server.AddResourceTemplate(mcp.NewResourceTemplate(jobScheme+"{job_id}{?offset}", "job output",
		mcp.WithTemplateDescription("What a job has written so far. With offset, the number after ---OFFSET--- of the reading before, only what came since."),
		mcp.WithTemplateMIMEType("text/plain")), p.readStream)
}

// pythonBool is a truth value as the specification's listing writes it.
func pythonBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

func secondsText(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }

// exitText is an exit code as text; "None" before the end, and of what never ran.
func exitText(r *executor.Result) string {
	if r == nil || r.ExitCode == nil && r.Signal == "" {
		return "None"
	}
	return strconv.Itoa(exitCode(*r))
}

func (p *python) listJobs(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if err := bind(request, &listJobsArgs{}); err != nil {
		return mcp.NewToolResultError("ValueError: " + err.Error()), nil
	}
	out := jobList{Result: []jobInfo{}}
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

func (p *python) getOutput(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var a jobOutputArgs
	if err := bind(request, &a); err != nil {
		return mcp.NewToolResultError("ValueError: " + err.Error()), nil
	}
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
	if _, err := p.replay(ctx, x, 0, func(o executor.Output) {
		if o.Stream == executor.Stderr {
			stderr.add(o)
		} else {
			stdout.add(o)
		}
	}); err != nil {
		return p.jobError("get_job_output", a.JobID, err), nil
	}
	hint := "; read them with stdout_offset and stderr_offset"
	outText, errText := stdout.text(hint), stderr.text(hint) // they settle the next offsets
	out := jobOutput{
		Status: "running", Stdout: outText, Stderr: errText, ExitCode: exitText(x.Result),
		ElapsedSeconds: secondsText(elapsed(x)), StdoutBytes: x.StdoutBytes, StderrBytes: x.StderrBytes,
		StdoutTruncated: stdout.cut(), StderrTruncated: stderr.cut(),
		NextStdoutOffset: stdout.next, NextStderrOffset: stderr.next,
	}
	var files []mcp.Content
	if r := x.Result; r != nil {
		files = artifacts(x.ID, *r)
		out.Status = "finished"
		out.StdoutBytes, out.StderrBytes = r.StdoutBytes, r.StderrBytes
		out.StdoutTruncated, out.StderrTruncated = out.StdoutTruncated || r.StdoutTruncated, out.StderrTruncated || r.StderrTruncated
		if !ran(*r) {
			out.Error = fmt.Sprintf("%s: %s", r.Failure.Phase, r.Failure.Message)
		}
		if !stderr.cut() || stderr.whole != nil { // a piece with more behind it is not the end
			out.Stderr += suffix(r.Status)
		}
	}
	return structured(out, "", files...)
}

// elapsed is how long an Execution has been there, or was.
func elapsed(x executor.Execution) time.Duration {
	if !x.FinishedAt.IsZero() {
		return x.FinishedAt.Sub(x.CreatedAt)
	}
	if x.CreatedAt.IsZero() {
		return 0
	}
	return time.Since(x.CreatedAt)
}

// jobError is the answer to an error about a job.
func (p *python) jobError(tool, id string, err error) *mcp.CallToolResult {
	switch executor.CodeOf(err) {
	case executor.NotFound, executor.Purged:
		return errNoJob(id)
	}
	return p.toolError(tool, err, scriptNames)
}

// replay hands what x had written when it was read to take, from Seq after on, and returns the Seq that it has come to.
func (p *python) replay(ctx context.Context, x executor.Execution, after uint64, take func(executor.Output)) (last uint64, err error) {
	if x.LastSeq == 0 {
		return p.replayRemote(ctx, x, after, take)
	}
	if last = max(after, x.LastSeq); after >= x.LastSeq {
		return last, nil
	}
	for e, err := range p.svc.Events(ctx, x.ID, after) {
		if err != nil {
			return last, err
		}
		if o, ok := e.Body.(executor.Output); ok {
			take(o)
		}
		if e.Seq >= x.LastSeq {
			break
		}
	}
	return last, nil
}

// replayRemote is replay where x does not say what its last Event is: on a server elsewhere. It says how much there is.
func (p *python) replayRemote(ctx context.Context, x executor.Execution, after uint64, take func(executor.Output)) (last uint64, err error) {
	var stdout, stderr int64
	last = after
	for e, err := range p.svc.Events(ctx, x.ID, 0) {
		if err != nil {
			return last, err
		}
		if o, ok := e.Body.(executor.Output); ok {
			if o.Stream == executor.Stderr {
				stderr = o.Offset + int64(len(o.Data))
			} else {
				stdout = o.Offset + int64(len(o.Data))
			}
			if e.Seq > after {
				take(o)
			}
		}
		last = max(last, e.Seq)
		if !x.Status.Terminal() && stdout >= x.StdoutBytes && stderr >= x.StderrBytes {
			break
		}
	}
	return last, nil
}

func (p *python) killJob(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var a killJobArgs
	if err := bind(request, &a); err != nil {
		return mcp.NewToolResultError("ValueError: " + err.Error()), nil
	}
	x, err := p.svc.Cancel(ctx, a.JobID)
	if err == nil && x.Result == nil {
		x, err = p.svc.Get(ctx, a.JobID) // a server elsewhere tells the status only
	}
	if err != nil {
		return p.jobError("kill_job", a.JobID, err), nil
	}
	status := "killed"
	if x.Status != executor.StatusKilled {
		status = "finished" // it had ended before
	}
	return structured(killJobResult{JobID: a.JobID, Status: status, ExitCode: exitText(x.Result)}, "")
}

func (p *python) cleanup(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var a jobCleanupArgs
	if err := bind(request, &a); err != nil {
		return mcp.NewToolResultError("ValueError: " + err.Error()), nil
	}
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

// readStream is the resource job-stream://{job_id}{?offset}.
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
	last, err := p.replay(ctx, x, after, func(o executor.Output) {
		if o.Stream == executor.Stderr {
			stderr.add(o)
		} else {
			stdout.add(o)
		}
	})
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

func parseJobURI(uri string) (id string, after uint64, err error) {
	rest, ok := strings.CutPrefix(uri, jobScheme)
	if !ok {
		return "", 0, fmt.Errorf("%s: %w", uri, server.ErrResourceNotFound)
	}
	id, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", 0, executor.Errorf(executor.Invalid, "offset: %v", err)
	}
	if text := values.Get("offset"); text != "" {
		if after, err = strconv.ParseUint(text, 10, 63); err != nil {
			return "", 0, executor.Errorf(executor.Invalid, "offset: must be a whole number (got %q)", text)
		}
	}
	return id, after, nil
}

// window is what is returned of a stream: from an offset on as much as fits, or, without one, its beginning and its end.
type window struct {
	from  int64
	whole *tail // nil with an offset
	limit int
	data  []byte
	end   int64 // of the stream so far
	next  int64
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
	if at == w.next { // behind a gap nothing is taken: the client would not see it
		w.data = append(w.data, data...)
		w.next += int64(len(data))
	}
}

// cut reports whether there is more than is returned.
func (w *window) cut() bool {
	if w.whole != nil {
		return w.whole.truncated()
	}
	return w.next < w.end
}

func (w *window) text(hint string) string {
	if w.whole != nil {
		return w.whole.text(hint)
	}
	text := string(w.data)
	if w.cut() { // the rest of a character comes with the next piece
		whole := trimPartialRune(text)
		w.next -= int64(len(text) - len(whole))
		text = whole
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
