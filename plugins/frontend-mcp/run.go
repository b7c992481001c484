package mcpfrontend

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/python-executor/python-executor/core/executor"
)

// stopTimeout bounds the cancelling of an Execution whose caller has gone.
const stopTimeout = 30 * time.Second

// outcome is an Execution that was followed to its end.
type outcome struct {
	id      string
	session string // the one it ran in; empty: a sandbox of its own
	started *executor.Started
	result  executor.Result
	stdout  tail
	stderr  tail
	// displays are what it displayed; value is the last expression's.
	displays []executor.Display
}

// run submits spec and follows it to its end. What it wrote is kept up to limit bytes of each stream.
func (t *tools) run(ctx context.Context, spec executor.Spec, in executor.Input, p *progress, limit int) (*outcome, error) {
	spec.FilesChanged = spec.Session != ""
	o := &outcome{session: spec.Session, stdout: tail{limit: limit}, stderr: tail{limit: limit}}
	return o, t.follow(ctx, spec, in, o, func(e executor.Event) { o.take(e, p) })
}

// follow submits spec and gives take every Event of it, to its end. o gets its id. When ctx ends, the Execution is
// cancelled: a client that has gone leaves nothing running.
//
// The end of ctx does not break off a Submit: the core may have accepted the Execution by then, and nobody would learn its
// id and cancel it.
func (t *tools) follow(ctx context.Context, spec executor.Spec, in executor.Input, o *outcome, take func(executor.Event)) error {
	following, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	x, events, err := executor.SubmitAndFollow(following, t.svc, spec, in)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })()
	o.id = x.ID
	for e, err := range events {
		if err != nil {
			if ctx.Err() != nil {
				t.cancel(ctx, x.ID)
				return context.Cause(ctx)
			}
			return err
		}
		take(e)
	}
	if o.result.Status == executor.StatusUnknown {
		return executor.Errorf(executor.Unavailable, "the log of %s ended early", x.ID)
	}
	return nil
}

// cancel stops an Execution that nobody waits for any more.
func (t *tools) cancel(ctx context.Context, id string) {
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer end()
	if _, err := t.svc.Cancel(ctx, id); err != nil {
		t.log.Warn("cancel", "execution", id, "error", err)
	}
}

func (o *outcome) take(e executor.Event, p *progress) {
	switch b := e.Body.(type) {
	case executor.Queued:
		if b.Position > 0 {
			p.say(fmt.Sprintf("waiting, %d before it", b.Position), true)
		}
	case executor.Progress:
		p.say(b.Message, false)
	case executor.Started:
		o.started = &b
		p.say("started", true)
	case executor.Output:
		s := &o.stdout
		if b.Stream == executor.Stderr {
			s = &o.stderr
		}
		s.add(b.Data)
		p.say(lastLine(b.Data), false)
	case executor.Display:
		o.displays = append(o.displays, b)
	case executor.Finished:
		o.result = b.Result
	case executor.Unknown:
	}
}

// lastLine is the end of what was written, for a progress message.
func lastLine(data []byte) string {
	text := strings.TrimRight(strings.ToValidUTF8(string(data), "\uFFFD"), "\r\n")
	if i := strings.LastIndexAny(text, "\r\n"); i >= 0 {
		text = text[i+1:]
	}
	return cut(text, 200)
}

// cut shortens text to at most n bytes of whole characters.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

// tail keeps the beginning and the end of a stream: half of limit each. The end is where errors stand.
type tail struct {
	limit int
	head  []byte
	end   []byte
	total int64
}

func (t *tail) add(data []byte) {
	t.total += int64(len(data))
	half := t.limit / 2
	if room := half - len(t.head); room > 0 {
		n := min(room, len(data))
		t.head = append(t.head, data[:n]...)
		data = data[n:]
	}
	t.end = append(t.end, data...)
	if over := len(t.end) - (t.limit - half); over > 0 {
		t.end = append(t.end[:0], t.end[over:]...)
	}
}

// truncated reports whether something is missing.
func (t *tail) truncated() bool { return t.total > int64(len(t.head)+len(t.end)) }

// text is what was kept. Where something is missing it says how much, and where the rest is.
func (t *tail) text(where string) string {
	head, end := string(t.head), string(t.end)
	if t.truncated() {
		missing := t.total - int64(len(t.head)+len(t.end))
		head = strings.ToValidUTF8(head, "") + fmt.Sprintf("\n[… %d of %d bytes left out%s …]\n", missing, t.total, where)
		end = strings.ToValidUTF8(end, "")
	}
	return strings.ToValidUTF8(head+end, "\uFFFD")
}

// structured is a normal result: v as structured content, and as the text that models read. more are images and links.
func structured(v any, text string, more ...mcp.Content) (*mcp.CallToolResult, error) {
	if text == "" {
		raw, err := plainJSON(v)
		if err != nil {
			return nil, err
		}
		text = string(raw)
	}
	return &mcp.CallToolResult{
		Content:           append([]mcp.Content{mcp.NewTextContent(text)}, more...),
		StructuredContent: v,
	}, nil
}

// toolError is a result that says what went wrong and what to change. Only the detail of what is our own fault stays in
// the log. names has the tool's arguments by the fields of a Spec.
func (t *tools) toolError(what string, err error, names map[string]string) *mcp.CallToolResult {
	if executor.CodeOf(err) == executor.Internal {
		t.log.Error("tool failed", "tool", what, "error", err)
		return mcp.NewToolResultError("Error: internal error; the server's log says more")
	}
	return mcp.NewToolResultError("Error: " + argumentError(err, names).Error())
}
