package mcpfrontend

import (
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
	Command   string   `json:"command" jsonschema:"Command line for sh -c, or, with args, the executable's name"`
	Args      []string `json:"args,omitempty" jsonschema:"Arguments; when present, command is executed directly, without a shell"`
	Stdin     string   `json:"stdin,omitempty" jsonschema:"Text for the command's standard input"`
	TimeoutMS int64    `json:"timeout_ms,omitempty" jsonschema:"Kill the command and everything it started after so many milliseconds; default: the server's"`
}

// names are the arguments by the fields of the Spec that is made of them.
func (a executeArgs) names() map[string]string {
	names := map[string]string{"config.timeout_seconds": "timeout_ms (in seconds)", "command[0]": "command", "command[2]": "command"}
	for i := range a.Args {
		names[fmt.Sprintf("command[%d]", i+1)] = fmt.Sprintf("args[%d]", i)
	}
	return names
}

// executeResult is what execute returns, as its specification has it.
type executeResult struct {
	Stdout          string `json:"stdout"`
	Stderr          string `json:"stderr"`
	ExitCode        int    `json:"exit_code"`
	TimedOut        bool   `json:"timed_out"`
	StdoutTruncated bool   `json:"stdout_truncated"`
	StderrTruncated bool   `json:"stderr_truncated"`
	ElapsedMS       int64  `json:"elapsed_ms"`
}

// The texts of execute's errors.
const (
	errCommandEmpty = "Error: command: empty"
	errSpawnFailed  = "Error: execute: spawn failed"
	errWaitFailed   = "Error: execute: wait failed"
	errReadFailed   = "Error: execute: read failed"
)

// shell is the toolset shell: one tool, in a sandbox that lives as long as the MCP session.
type shell struct {
	*tools
	boxes *sandboxes
	// lasting: the backend has sessions in which commands run, so that files persist between calls.
	lasting bool
}

// serversSandbox is how the sandboxes of a server's MCP sessions are known: those sessions end with this process.
const serversSandbox = "files of an MCP session of this server"

func (t *tools) addShell(ctx context.Context) error {
	can := t.backend.Capabilities
	if t.backend.Healthy && !can.Commands {
		t.log.Warn("toolset shell is left out: the backend runs no commands", "backend", t.backend.Name)
		return nil
	}
	s := &shell{tools: t, lasting: can.Sessions && slices.Contains(can.Languages, executor.LanguageShell)}
	description := "files of the MCP toolset shell"
	if !t.config.Stdio {
		description = serversSandbox
	}
	s.boxes = newSandboxes(t, executor.Session{
		Name: "shell", Description: description, Language: executor.LanguageShell,
		Spec: executor.Spec{Language: executor.LanguageShell, Backend: t.config.Backend, Network: t.config.network(ToolsetShell)},
	})
	if s.lasting && !t.config.Stdio {
		s.boxes.sweep(ctx)
	}
	where := "Files persist between the calls of one MCP session."
	if !s.lasting {
		where = "Every call has a fresh sandbox of its own: files do not persist."
	}
	net := "The network is off."
	if t.config.network(ToolsetShell) == executor.NetworkOn {
		net = "The network is on."
	}
	t.server.AddTool(mcp.NewTool("execute",
		titled("Run a shell command"),
		mcp.WithDescription("Run a command in a sandbox and return its stdout, stderr and exit code (-n: killed by signal n). "+
			"Without args the command is a line for sh -c; with args it is executed directly. "+where+" "+net),
		inputSchema[executeArgs](),
		outputSchema[executeResult](),
		mcp.WithReadOnlyHintAnnotation(false),
		mcp.WithDestructiveHintAnnotation(false), // it destroys nothing outside its own sandbox
		mcp.WithIdempotentHintAnnotation(false),
		mcp.WithOpenWorldHintAnnotation(t.config.network(ToolsetShell) == executor.NetworkOn),
	), s.execute)
	return nil
}

func (s *shell) execute(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var a executeArgs
	if err := bind(request, &a); err != nil {
		return mcp.NewToolResultError("Error: " + err.Error()), nil
	}
	if strings.TrimSpace(a.Command) == "" {
		return mcp.NewToolResultError(errCommandEmpty), nil
	}
	if a.TimeoutMS < 0 {
		return mcp.NewToolResultError("Error: timeout_ms: must be positive"), nil
	}
	spec := executor.Spec{
		Command: []string{"sh", "-c", a.Command}, Backend: s.config.Backend, Network: s.config.network(ToolsetShell),
		Limits:         executor.Limits{Timeout: duration(a.TimeoutMS, time.Millisecond)},
		OutputsChanged: s.backend.Capabilities.Artifacts, // what it makes is linked to
	}
	if a.Args != nil { // null is the same as none
		spec.Command = append([]string{a.Command}, a.Args...)
	}
	began := time.Now()
	c := &capture{left: s.config.Shell.MaxOutputBytes}
	o, err := s.inSandbox(ctx, spec, a.Stdin, newProgress(ctx, request), c, metaSession(request))
	if err != nil {
		return s.failure(ctx, argumentError(err, a.names())), nil
	}
	result := o.result
	if f := result.Failure; !ran(result) {
		switch {
		case f.Phase == executor.PhaseStart:
			return detailed(errSpawnFailed, f.Message), nil
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
	s.logOutput(a.Command, out)
	return structured(out, "", filesOf(o)...)
}

// detailed is an error in the specification's words, with what is behind it in a text of its own.
func detailed(text, detail string) *mcp.CallToolResult {
	r := mcp.NewToolResultError(text)
	r.Content = append(r.Content, mcp.NewTextContent(detail))
	return r
}

// failure is the text of an error that is ours, or of a request that is refused.
func (s *shell) failure(ctx context.Context, err error) *mcp.CallToolResult {
	switch {
	case ctx.Err() != nil:
		return detailed(errWaitFailed, "cancelled")
	case executor.CodeOf(err) == executor.Internal, executor.CodeOf(err) == executor.Purged:
		s.log.Error("execute", "error", err)
		return mcp.NewToolResultError(errReadFailed)
	}
	return s.toolError("execute", err, nil)
}

// logOutput logs what the configuration says, as attributes of one line.
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

// inSandbox runs spec in the sandbox of the MCP session, in the Session that the client has named, or in a fresh one.
func (s *shell) inSandbox(ctx context.Context, spec executor.Spec, stdin string, p *progress, c *capture, named string) (*outcome, error) {
	if named != "" {
		return s.capture(ctx, inSession(spec, named), stdin, p, c)
	}
	owner := mcpSessionID(ctx)
	if owner == "" || !s.lasting {
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
	s.boxes.forget(owner, id) // it was lost, or closed by somebody: its files are gone
	if id, err = s.boxes.open(ctx, owner); err != nil {
		return nil, err
	}
	return s.capture(ctx, inSession(spec, id), stdin, p, c)
}

// inSession leaves of spec what may be said in a Session.
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

// textSource is text as an input.
func textSource(text string) *executor.Source {
	return &executor.Source{
		Open:      func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil },
		SizeBytes: int64(len(text)), Replayable: true,
	}
}

// capture keeps the first bytes of both streams, together.
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

// text is a captured stream; a character that the bound has cut in two is left out.
func (c *capture) text(b *[]byte) string {
	text := string(*b)
	if c.stdoutCut || c.stderrCut {
		text = trimPartialRune(text)
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// sandboxes holds the Session of each MCP session, opened when it is first needed and closed with it.
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

// sweep closes what a process before this one has left: its MCP sessions have ended with it.
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

// open returns the Session of the MCP session owner.
func (b *sandboxes) open(ctx context.Context, owner string) (string, error) {
	b.mu.Lock()
	box := b.byMCP[owner]
	if box == nil {
		box = &sandbox{ready: make(chan struct{}), principal: executor.PrincipalFrom(ctx)}
		b.byMCP[owner] = box
		// Not under the call's ctx: other calls wait for the same sandbox.
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

// forget lets the next open make a new one, if owner's is still id.
func (b *sandboxes) forget(owner, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if box := b.byMCP[owner]; box != nil {
		select {
		case <-box.ready:
			if box.id == id {
				delete(b.byMCP, owner)
			}
		default: // somebody has begun anew
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
