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
	// stdioWorkers is the number of mcp-go's workers, at its maximum.
	stdioWorkers = 100
	// maxCalls bounds the calls that run at once. The other workers serve the tools that quick lists, such as kill_job.
	maxCalls   = 80
	stdioQueue = 10_000
)

// serveStdio serves one client over in and out until in or ctx ends. When in ends, it still answers the client's requests.
// The client is the user of this machine: the local owner, trusted.
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

// stdioClient is the client's streams for mcp-go. Its Reader returns whole lines, and io.EOF only after every request was
// answered. Its Writer is shared with notifications.
type stdioClient struct {
	lines *bufio.Reader
	rest  []byte // the messages that mcp-go has not read yet

	mu      sync.Mutex
	cond    *sync.Cond // for pending and err
	out     io.Writer
	err     error                 // the first error of out: the client has disconnected
	pending map[string][]*request // the requests without an answer, by id
	version string                // the negotiated revision of the protocol
}

// request is a request without an answer.
type request struct {
	// call reports whether the request is a tools/call. mcp-go queues calls and can cancel a call only after it has begun.
	call, begun bool
	// cancelled is the notification that cancels a call that has not begun; nil: none.
	cancelled []byte
	batch     *batch // nil: the request is not part of a batch
}

// batch collects the answers to a batch. left is the number of missing answers.
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

// envelope is the part of a message that tells its kind and its revision of the protocol.
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

// take returns the messages of a line for mcp-go, each as a line with a line end.
func (c *stdioClient) take(line []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !isBatch(line) {
		return c.pass(line, nil)
	}
	messages, answers, refusal := splitBatch(line, c.version)
	if refusal != nil {
		_, _ = c.write(append(refusal, '\n')) // write keeps its error in c.err
		return nil
	}
	b := &batch{answers: answers}
	var list []byte
	for _, message := range messages {
		var one bytes.Buffer
		if json.Compact(&one, message) == nil { // removes line breaks
			list = append(list, c.pass(one.Bytes(), b)...)
		}
	}
	c.finish(b)
	return list
}

// pass records a request and returns the message as a line. It returns nil for a cancellation that must wait until its call
// has begun. The caller holds mu.
func (c *stdioClient) pass(message []byte, b *batch) []byte {
	line := append(bytes.Clone(message), '\n')
	var e envelope
	if _ = json.Unmarshal(message, &e); e.Method == "" { // mcp-go refuses params of another type
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

// begun is called before the handler of a call, when mcp-go can cancel the call. It delivers a cancellation that has waited.
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

// negotiated sets the revision of the client.
func (c *stdioClient) negotiated(version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version = version
}

// canonical returns an id as mcp-go writes it in answers: 1.0 becomes 1.
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

// Write implements io.Writer. mcp-go calls it with one message at a time.
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
		b.answers = append(b.answers, bytes.Clone(withIsError(bytes.TrimSpace(p))))
		b.left--
		c.finish(b)
	}
	if c.pending[id] = waiting[1:]; len(waiting) == 1 {
		delete(c.pending, id)
	}
	c.cond.Broadcast()
	return n, err
}

// finish writes the answers to a batch when none is missing. The caller holds mu.
func (c *stdioClient) finish(b *batch) {
	if b.left > 0 || len(b.answers) == 0 {
		return
	}
	raw, err := json.Marshal(b.answers)
	if err == nil {
		_, _ = c.write(append(raw, '\n')) // write keeps its error in c.err
	}
}

// write writes p to the client and keeps the first error. The caller holds mu.
func (c *stdioClient) write(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	if _, err := c.out.Write(plainMessage(p)); err != nil {
		c.err = err
		c.cond.Broadcast()
		return 0, err
	}
	return len(p), nil
}

// notify is the notifier of all requests.
func (c *stdioClient) notify(message []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.write(append(message, '\n'))
	return err
}

// drain waits until every request was answered, or the client has disconnected.
func (c *stdioClient) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.pending) > 0 && c.err == nil {
		c.cond.Wait()
	}
}
