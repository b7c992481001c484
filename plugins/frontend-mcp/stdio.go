package mcpfrontend

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// stdioWorkers is the most that mcp-go allows. maxCalls keeps some of them free, so that a call which ends others
	// (kill_job) is always served.
	stdioWorkers = 100
	maxCalls     = 80
	stdioQueue   = 10_000
)

// serveStdio speaks with one client over in and out until in ends or ctx does. When in ends, what the client has asked for
// is still answered. The client is the user at this machine: the local owner, trusted.
func serveStdio(ctx context.Context, s *server.MCPServer, in io.Reader, out io.Writer, log *log.Logger) error {
	ctx = executor.WithPrincipal(ctx, executor.Principal{
		Owner:  executor.LocalOwner,
		Scopes: []executor.Scope{executor.ScopeExec, executor.ScopeRead, executor.ScopeScripts, executor.ScopeTrusted},
	})
	c := newStdioClient(in, out)
	ctx = context.WithValue(withNotifier(ctx, c.notify), stdioKey{}, c)
	stdio := server.NewStdioServer(s)
	stdio.SetErrorLogger(log)
	server.WithWorkerPoolSize(stdioWorkers)(stdio)
	server.WithQueueSize(stdioQueue)(stdio)
	err := stdio.Listen(ctx, c, c)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// stdioClient is the client as mcp-go sees it: a Reader of whole lines that tells of its end only when every request has
// been answered, and a Writer that notifications share.
type stdioClient struct {
	lines *bufio.Reader
	rest  []byte // of what is at hand

	mu      sync.Mutex
	cond    *sync.Cond
	out     io.Writer
	err     error                 // of out: nobody listens any more
	pending map[string][]*request // requests by id that were not answered
	version string                // the revision that was negotiated
}

// request is one that was not answered yet.
type request struct {
	// call: mcp-go has a queue for it. Until it has begun, what would cancel it is kept here: mcp-go would find nothing to
	// cancel.
	call, begun bool
	cancelled   []byte
	batch       *batch // nil: it is in none
}

// batch holds the answers to a batch until there are all.
type batch struct {
	left    int
	answers []json.RawMessage
}

type stdioKey struct{}

func newStdioClient(in io.Reader, out io.Writer) *stdioClient {
	c := &stdioClient{lines: bufio.NewReaderSize(in, 64<<10), out: out, pending: map[string][]*request{}}
	c.cond = sync.NewCond(&c.mu)
	return c
}

// Read implements io.Reader.
func (c *stdioClient) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		line, err := c.lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			c.rest = c.take(bytes.TrimSpace(line))
			continue
		}
		if err != nil {
			c.drain()
			return 0, err
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// envelope is what tells requests and answers from the rest.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Meta struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
		RequestID json.RawMessage `json:"requestId"`
	} `json:"params"`
}

// take returns what mcp-go shall read of a line: its messages, each a line with its end, which the client may have left out.
func (c *stdioClient) take(line []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !isBatch(line) {
		return c.pass(line, nil)
	}
	messages, answers, refusal := splitBatch(line, c.version)
	if refusal != nil {
		_, _ = c.write(append(refusal, '\n')) // drain sees that nobody listens
		return nil
	}
	b := &batch{answers: answers}
	var list []byte
	for _, message := range messages {
		var one bytes.Buffer
		if json.Compact(&one, message) == nil { // it may have had line breaks in it
			list = append(list, c.pass(one.Bytes(), b)...)
		}
	}
	c.finish(b)
	return list
}

// pass notes what a message asks for and returns it as a line; nothing if it must wait. The caller holds the lock.
func (c *stdioClient) pass(message []byte, b *batch) []byte {
	line := append(bytes.Clone(message), '\n')
	var e envelope
	if _ = json.Unmarshal(message, &e); e.Method == "" { // params of another kind are mcp-go's to refuse
		return line
	}
	if len(e.ID) > 0 && string(e.ID) != "null" {
		r := &request{call: e.Method == string(mcp.MethodToolsCall), batch: b}
		id := canonical(e.ID)
		c.pending[id] = append(c.pending[id], r)
		if b != nil {
			b.left++
		}
		return line
	}
	if e.Method == string(mcp.MethodNotificationCancelled) {
		for _, r := range c.pending[canonical(e.Params.RequestID)] {
			if r.call && !r.begun {
				r.cancelled = message
				return nil
			}
		}
	}
	return line
}

// begun is called when mcp-go can cancel a call, before its handler is.
func begun(ctx context.Context, id any, _ *mcp.CallToolRequest) {
	c, ok := ctx.Value(stdioKey{}).(*stdioClient)
	if !ok {
		return
	}
	raw, err := json.Marshal(id)
	if err != nil {
		return
	}
	c.mu.Lock()
	var cancelled []byte
	for _, r := range c.pending[string(raw)] {
		r.begun = true
		if r.cancelled != nil {
			cancelled, r.cancelled = r.cancelled, nil
		}
	}
	c.mu.Unlock()
	if cancelled != nil {
		server.ServerFromContext(ctx).HandleMessage(ctx, cancelled)
	}
}

// negotiated remembers the revision of the client.
func (c *stdioClient) negotiated(version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version = version
}

// canonical is an id as mcp-go writes it back: 1.0 becomes 1.
func canonical(id json.RawMessage) string {
	var v any
	if json.Unmarshal(id, &v) != nil {
		return string(id)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return string(id)
	}
	return string(raw)
}

// Write implements io.Writer: one message at a time.
func (c *stdioClient) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var e envelope
	if json.Unmarshal(p, &e) != nil || e.Method != "" || len(e.ID) == 0 {
		return c.write(p)
	}
	id := canonical(e.ID)
	waiting := c.pending[id]
	if len(waiting) == 0 {
		return c.write(p)
	}
	n, err := len(p), error(nil)
	if b := waiting[0].batch; b == nil {
		n, err = c.write(p)
	} else {
		b.answers = append(b.answers, bytes.Clone(bytes.TrimSpace(p)))
		b.left--
		c.finish(b)
	}
	if c.pending[id] = waiting[1:]; len(waiting) == 1 {
		delete(c.pending, id)
	}
	c.cond.Broadcast()
	return n, err
}

// finish answers a batch when all of it is answered. The caller holds the lock.
func (c *stdioClient) finish(b *batch) {
	if b.left > 0 || len(b.answers) == 0 {
		return
	}
	raw, err := json.Marshal(b.answers)
	if err == nil {
		_, _ = c.write(append(raw, '\n')) // drain sees that nobody listens
	}
}

func (c *stdioClient) write(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	if _, err := c.out.Write(unescapeHTML(p)); err != nil {
		c.err = err
		c.cond.Broadcast()
		return 0, err
	}
	return len(p), nil
}

func (c *stdioClient) notify(message []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.write(append(message, '\n'))
	return err
}

// drain waits until every request has been answered, or nobody listens.
func (c *stdioClient) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.pending) > 0 && c.err == nil {
		c.cond.Wait()
	}
}
