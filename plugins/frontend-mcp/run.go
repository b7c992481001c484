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

// stopTimeout bounds the cancelling of an Execution whose client has disconnected.
const stopTimeout = 30 * time.Second

// outcome is an Execution that was followed to its end.
type outcome struct {
	id      string
	session string // the Session that it ran in; empty: none
	started *executor.Started
	result  executor.Result
	stdout  tail
	stderr  tail
	// displays are the Displays in their order.
	displays []executor.Display
}

// run submits spec and follows the Execution to its end. It keeps at most limit bytes of each stream.
func (t *tools) run(ctx context.Context, spec executor.Spec, in executor.Input, p *progress, limit int) (*outcome, error) {
	spec.FilesChanged = spec.Session != ""
	o := &outcome{session: spec.Session, stdout: tail{limit: limit}, stderr: tail{limit: limit}}
	return o, t.follow(ctx, spec, in, o, func(e executor.Event) { o.take(e, p) })
}

// follow submits spec, calls take with every Event of the Execution, and stores the Execution's id in o. When ctx ends,
// follow cancels the Execution, so that a client that has disconnected leaves nothing running.
//
// The end of ctx does not interrupt Submit. The core may already have accepted the Execution, and without its id nothing
// could cancel it.
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

// cancel stops an Execution whose client has disconnected.
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

// lastLine returns the last line of data, shortened for a progress message.
func lastLine(data []byte) string {
	text := strings.TrimRight(strings.ToValidUTF8(string(data), "\uFFFD"), "\r\n")
	if i := strings.LastIndexAny(text, "\r\n"); i >= 0 {
		text = text[i+1:]
	}
	return cut(text, 200)
}

// cut shortens text to at most n bytes of whole characters, and marks the cut with "…".
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

// tail keeps the beginning and the end of a stream, each at most half of limit. Errors are usually at the end.
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

// truncated reports whether bytes of the stream were left out.
func (t *tail) truncated() bool { return t.total > int64(len(t.head)+len(t.end)) }

// text returns what was kept. A note in the middle tells how many bytes were left out. where is added to that note and
// tells how to read them.
func (t *tail) text(where string) string {
	head, end := string(t.head), string(t.end)
	if t.truncated() {
		missing := t.total - int64(len(t.head)+len(t.end))
		head = strings.ToValidUTF8(head, "") + fmt.Sprintf("\n[… %d of %d bytes left out%s …]\n", missing, t.total, where)
		end = strings.ToValidUTF8(end, "")
	}
	return strings.ToValidUTF8(head+end, "\uFFFD")
}

// structured returns a normal result with v as structured content and text as the text that models read. If text is empty,
// v as JSON is the text. more holds images and links.
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

// toolError returns a result that says what is wrong and what to change. The details of an internal error go to the log
// only. names maps the fields of a Spec to the tool's arguments.
func (t *tools) toolError(what string, err error, names map[string]string) *mcp.CallToolResult {
	if executor.CodeOf(err) == executor.Internal {
		t.log.Error("tool failed", "tool", what, "error", err)
		return mcp.NewToolResultError("Error: internal error; the server's log says more")
	}
	return mcp.NewToolResultError("Error: " + argumentError(err, names).Error())
}
