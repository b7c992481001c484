package mcpfrontend

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/python-executor/python-executor/core/executor"
)

// executeArgs are the arguments of execute.
type executeArgs struct {
	Command   string   `json:"command" jsonschema:"A line for sh -c; with args, the executable"`
	Args      []string `json:"args,omitempty"`
	Stdin     string   `json:"stdin,omitempty"`
	TimeoutMS int64    `json:"timeout_ms,omitempty"`
	cpuArgs
}

// names maps the fields of a Spec to the arguments.
func (a executeArgs) names() map[string]string {
	names := map[string]string{"config.timeout_seconds": "timeout_ms", executor.FieldCPUTime: "cpu_seconds", "command[0]": "command", "command[2]": "command"}
	for i := range a.Args {
		names[fmt.Sprintf("command[%d]", i+1)] = fmt.Sprintf("args[%d]", i)
	}
	return names
}

// executeResult is the result of execute, in the form of its specification.
type executeResult struct {
	Stdout          string `json:"stdout"`
	Stderr          string `json:"stderr"`
	ExitCode        int    `json:"exit_code"`
	TimedOut        bool   `json:"timed_out"`
	StdoutTruncated bool   `json:"stdout_truncated"`
	StderrTruncated bool   `json:"stderr_truncated"`
	ElapsedMS       int64  `json:"elapsed_ms"`
	Hint            string `json:"hint,omitempty"`
}

// The error texts of execute. The specification prescribes them.
const (
	errCommandEmpty = "Error: command: empty"
	errSpawnFailed  = "Error: execute: spawn failed"
	errWaitFailed   = "Error: execute: wait failed"
	errReadFailed   = "Error: execute: read failed"
)

// shell is the toolset shell. It has one tool, whose sandbox lives as long as the MCP session.
type shell struct {
	*tools
	boxes *sandboxes
}

// lasting reports whether the backend can run commands in a Session. Files then persist between calls.
func (s *shell) lasting() bool {
	can := s.backend().Capabilities
	return can.Sessions && slices.Contains(can.Languages, executor.LanguageShell)
}

// serversSandbox is the description of the sandboxes of MCP sessions over HTTP. Those sessions end with this process, so the
// next process closes the sandboxes of that description.
const serversSandbox = "files of an MCP session of this server"

func (t *tools) startShell(ctx context.Context) func() {
	s := &shell{tools: t}
	description := "files of the MCP toolset shell"
	if !t.config.Stdio {
		description = serversSandbox
	}
	s.boxes = newSandboxes(t, executor.Session{
		Name: "shell", Description: description, Language: executor.LanguageShell,
		Spec: executor.Spec{Language: executor.LanguageShell, Backend: t.config.Backend, Network: t.config.network(ToolsetShell)},
	})
	if !t.config.Stdio && !t.config.Successor {
		s.boxes.sweep(ctx)
	}
	return s.add
}

// add adds the tool.
func (s *shell) add() {
	t := s.tools
	if b := t.backend(); b.Healthy && !b.Capabilities.Commands {
		t.log.Warn("toolset shell is left out: the backend runs no commands", "backend", b.Name)
		return
	}
	where := "Files stay for the MCP session."
	if !s.lasting() {
		where = "Each call has a fresh sandbox."
	}
	bad := func(err error) *mcp.CallToolResult { return mcp.NewToolResultError("Error: " + err.Error()) }
	addTool[executeArgs, executeResult](t, tool{ // it destroys nothing outside its own sandbox
		name: "execute", closed: t.config.network(ToolsetShell) != executor.NetworkOn,
		description: "Run a command in a sandbox. " + where + " " + networkText(t.config.network(ToolsetShell)),
	}, bad, s.execute)
}

func (s *shell) execute(ctx context.Context, request mcp.CallToolRequest, a executeArgs) (*mcp.CallToolResult, error) {
	if strings.TrimSpace(a.Command) == "" {
		return mcp.NewToolResultError(errCommandEmpty), nil
	}
	if a.TimeoutMS < 0 {
		return mcp.NewToolResultErrorf("Error: timeout_ms: must not be negative (got %d)", a.TimeoutMS), nil
	}
	spec := executor.Spec{
		Command: []string{"sh", "-c", a.Command}, Backend: s.config.Backend, Network: s.config.network(ToolsetShell),
		Limits:         executor.Limits{Timeout: duration(a.TimeoutMS, time.Millisecond)},
		OutputsChanged: s.backend().Capabilities.Artifacts, // the result links to these files
	}
	if err := a.bound(&spec.Limits); err != nil {
		return mcp.NewToolResultErrorf("Error: %v", err), nil
	}
	if a.Args != nil { // JSON null means no args
		spec.Command = append([]string{a.Command}, a.Args...)
	}
	began := time.Now()
	c := &capture{left: s.config.Shell.MaxOutputBytes}
	o, err := s.inSandbox(ctx, spec, a.Stdin, newProgress(ctx, request), c, metaSession(request))
	if err != nil {
		return s.failure(ctx, o, argumentError(err, a.names())), nil
	}
	result := o.result
	if f := result.Failure; !ran(result) {
		switch {
		case f.Phase == executor.PhaseStart:
			why := f.Message
			if a.Args != nil && strings.ContainsAny(strings.TrimSpace(a.Command), " \t|&;<>") {
				why += ". With args, command is the name of one program: leave args out to run a line of a shell"
			}
			return detailed(errSpawnFailed, why), nil
		case result.Status == executor.StatusLost:
			return detailed(errWaitFailed, f.Message), nil
		default:
			return mcp.NewToolResultError("Error: execute: " + f.Message), nil
		}
	}
	out := executeResult{
		Stdout: c.text(&c.stdout), Stderr: c.text(&c.stderr), ExitCode: exitCode(result),
		TimedOut:        result.Status == executor.StatusTimedOut,
		StdoutTruncated: c.stdoutCut || result.StdoutTruncated, StderrTruncated: c.stderrCut || result.StderrTruncated,
		ElapsedMS: time.Since(began).Milliseconds(),
	}
	called := a.Command
	if a.Args != nil {
		called = commandText(spec.Command)
	}
	advice := s.advice(ToolsetShell, s.packagesElsewhere)
	advice.input, advice.shell = "Give the input as stdin.", true
	out.Hint = cmp.Or(limitReached(result, "timeout_ms"),
		advice.hint(called, out.Stdout, out.Stderr, result))
	s.logOutput(a.Command, out)
	return structured(out, "", filesOf(o)...)
}

// packagesElsewhere names the tools that run code with packages.
func (s *shell) packagesElsewhere(packages string) string {
	var ways []string
	if s.config.has(ToolsetPython) {
		ways = append(ways, "run_script_with_dependencies with dependencies="+packages)
	}
	if s.config.has(ToolsetContexts) && s.backend().Capabilities.Sessions {
		ways = append(ways, "run_code with requirements="+packages)
	}
	if ways == nil {
		return "no tool that installs packages is offered here (mcp.toolsets: python, contexts)."
	}
	return "call " + strings.Join(ways, " or ") + "."
}

// detailed returns an error with a text of the specification, and the detail as a second text.
func detailed(text, detail string) *mcp.CallToolResult {
	r := mcp.NewToolResultError(text)
	r.Content = append(r.Content, mcp.NewTextContent(detail))
	return r
}

// failure returns the result for an error of the Service. o is nil, or has the id of the command if it was accepted.
func (s *shell) failure(ctx context.Context, o *outcome, err error) *mcp.CallToolResult {
	switch code := executor.CodeOf(err); {
	case ctx.Err() != nil:
		return detailed(errWaitFailed, "cancelled")
	case code == executor.Internal, code == executor.Purged:
		s.log.Error("execute", "error", err)
		return mcp.NewToolResultError(errReadFailed)
	case code == executor.Unavailable && o != nil && o.id != "":
		return detailed(errReadFailed, err.Error())
	}
	return s.toolError("execute", err, nil)
}

// logOutput logs the end of a command in one record, with as much output as the configuration allows.
func (s *shell) logOutput(command string, r executeResult) {
	n := s.config.Shell.LogOutputBytes
	if s.config.Shell.LogFullOutput {
		n = s.config.Shell.MaxOutputBytes
	}
	if n == 0 {
		s.log.Info("executed", "exit_code", r.ExitCode, "timed_out", r.TimedOut, "elapsed_ms", r.ElapsedMS)
		return
	}
	s.log.Info("executed", "command", cut(command, 200), "exit_code", r.ExitCode, "timed_out", r.TimedOut,
		"elapsed_ms", r.ElapsedMS, "stdout", cut(r.Stdout, n), "stderr", cut(r.Stderr, n))
}

// inSandbox runs spec in the Session that the client has named, else in the sandbox of the MCP session, else in a sandbox of
// its own.
func (s *shell) inSandbox(ctx context.Context, spec executor.Spec, stdin string, p *progress, c *capture, named string) (*outcome, error) {
	if named != "" {
		return s.capture(ctx, inSession(spec, named), stdin, p, c)
	}
	owner := mcpSessionID(ctx)
	if owner == "" || !s.lasting() {
		return s.capture(ctx, spec, stdin, p, c)
	}
	id, err := s.boxes.open(ctx, owner)
	if err != nil {
		return nil, err
	}
	o, err := s.capture(ctx, inSession(spec, id), stdin, p, c)
	if code := executor.CodeOf(err); code != executor.NotFound && code != executor.Conflict {
		return o, err
	}
	s.boxes.forget(owner, id) // the sandbox was lost or closed, with its files
	if id, err = s.boxes.open(ctx, owner); err != nil {
		return nil, err
	}
	return s.capture(ctx, inSession(spec, id), stdin, p, c)
}

// inSession returns a Spec for the Session id with the fields of spec that a Session allows.
func inSession(spec executor.Spec, id string) executor.Spec {
	return executor.Spec{Session: id, Command: spec.Command, Limits: spec.Limits, FilesChanged: true}
}

// capture runs spec and captures what it writes into c.
func (s *shell) capture(ctx context.Context, spec executor.Spec, stdin string, p *progress, c *capture) (*outcome, error) {
	in := executor.Input{}
	if stdin != "" {
		in.Stdin = textSource(stdin)
	}
	o := &outcome{session: spec.Session}
	return o, s.follow(ctx, spec, in, o, func(e executor.Event) {
		if b, ok := e.Body.(executor.Output); ok && !b.Earlier {
			c.add(b)
		}
		o.take(e, p)
	})
}

// textSource returns text as a Source.
func textSource(text string) *executor.Source {
	return &executor.Source{
		Open:      func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil },
		SizeBytes: int64(len(text)), Replayable: true,
	}
}

// capture keeps the first bytes of both streams. left is the number of bytes that still fit, for both together.
type capture struct {
	left                 int
	stdout, stderr       []byte
	stdoutCut, stderrCut bool
}

func (c *capture) add(o executor.Output) {
	n := min(c.left, len(o.Data))
	c.left -= n
	if o.Stream == executor.Stderr {
		c.stderr = append(c.stderr, o.Data[:n]...)
		c.stderrCut = c.stderrCut || n < len(o.Data)
		return
	}
	c.stdout = append(c.stdout, o.Data[:n]...)
	c.stdoutCut = c.stdoutCut || n < len(o.Data)
}

// text returns a captured stream, without a character that the bound has cut in two.
func (c *capture) text(b *[]byte) string {
	text := string(*b)
	if c.stdoutCut || c.stderrCut {
		text = trimPartialRune(text)
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// sandboxes holds the Session of each MCP session. The Session is opened at the first use and closed when the MCP session
// ends.
type sandboxes struct {
	t    *tools
	like executor.Session

	mu    sync.Mutex
	byMCP map[string]*sandbox
}

type sandbox struct {
	ready     chan struct{} // closed when id or err is set
	id        string
	err       error
	principal executor.Principal
}

func newSandboxes(t *tools, like executor.Session) *sandboxes {
	b := &sandboxes{t: t, like: like, byMCP: map[string]*sandbox{}}
	t.onSessionEnd = append(t.onSessionEnd, b.end)
	t.onClose = append(t.onClose, b.endAll)
	return b
}

// sweep closes the Sessions that an earlier process has left. Its MCP sessions have ended with that process.
func (b *sandboxes) sweep(ctx context.Context) {
	everybody := executor.WithPrincipal(ctx, executor.Principal{
		Owner: executor.LocalOwner, Scopes: []executor.Scope{executor.ScopeAdmin, executor.ScopeExec, executor.ScopeRead},
	})
	list, err := b.t.svc.ListSessions(everybody)
	if err != nil {
		b.t.log.Warn("look for sandboxes of MCP sessions that have ended", "error", err)
		return
	}
	for _, s := range list {
		if s.Status == executor.SessionClosed || s.Language != executor.LanguageShell || s.Description != serversSandbox {
			continue
		}
		b.t.wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(everybody), endTimeout)
			defer cancel()
			if _, err := b.t.svc.CloseSession(ctx, s.ID); err != nil {
				b.t.log.Warn("close the sandbox of an MCP session that has ended", "session", s.ID, "error", err)
			}
		})
	}
}

// open returns the Session of the MCP session owner, and opens it if there is none.
func (b *sandboxes) open(ctx context.Context, owner string) (string, error) {
	b.mu.Lock()
	box := b.byMCP[owner]
	if box == nil {
		box = &sandbox{ready: make(chan struct{}), principal: executor.PrincipalFrom(ctx)}
		b.byMCP[owner] = box
		// The end of the call's ctx must not interrupt OpenSession, because other calls wait for the same Session.
		ctx := executor.WithPrincipal(context.WithoutCancel(ctx), box.principal)
		b.t.wg.Go(func() {
			defer close(box.ready)
			s, err := b.t.svc.OpenSession(ctx, b.like)
			box.id, box.err = s.ID, err
		})
	}
	b.mu.Unlock()
	select {
	case <-box.ready:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if box.err != nil {
		b.forget(owner, "")
	}
	return box.id, box.err
}

// forget makes the next open open a new Session, if the Session of owner is still id.
func (b *sandboxes) forget(owner, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if box := b.byMCP[owner]; box != nil {
		select {
		case <-box.ready:
			if box.id == id {
				delete(b.byMCP, owner)
			}
		default: // another call is opening a new Session
		}
	}
}

// end closes the sandbox of an MCP session that has ended.
func (b *sandboxes) end(ctx context.Context, owner string) {
	b.mu.Lock()
	box := b.byMCP[owner]
	delete(b.byMCP, owner)
	b.mu.Unlock()
	if box != nil {
		b.close(ctx, box)
	}
}

// endAll closes the sandboxes of all MCP sessions.
func (b *sandboxes) endAll(ctx context.Context) {
	b.mu.Lock()
	all := b.byMCP
	b.byMCP = map[string]*sandbox{}
	b.mu.Unlock()
	for _, box := range all {
		b.close(ctx, box)
	}
}

func (b *sandboxes) close(ctx context.Context, box *sandbox) {
	select {
	case <-box.ready:
	case <-ctx.Done():
		return
	}
	if box.id == "" {
		return
	}
	if _, err := b.t.svc.CloseSession(executor.WithPrincipal(ctx, box.principal), box.id); err != nil {
		b.t.log.Warn("close the sandbox of an MCP session", "session", box.id, "error", err)
	}
}
