package mcpfrontend

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"sync"

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
	ctx = withNotifier(ctx, c.notify)
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
	rest  []byte // of the line at hand

	mu      sync.Mutex
	cond    *sync.Cond
	out     io.Writer
	err     error          // of out: nobody listens any more
	pending map[string]int // requests by id that were not answered
}

func newStdioClient(in io.Reader, out io.Writer) *stdioClient {
	c := &stdioClient{lines: bufio.NewReaderSize(in, 64<<10), out: out, pending: map[string]int{}}
	c.cond = sync.NewCond(&c.mu)
	return c
}

// Read implements io.Reader.
func (c *stdioClient) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		line, err := c.lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			if line[len(line)-1] != '\n' {
				line = append(line, '\n') // mcp-go would drop the last line of a client that does not end it
			}
			c.asked(line)
			c.rest = line
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
	} `json:"params"`
}

func (c *stdioClient) asked(line []byte) {
	var e envelope
	if json.Unmarshal(line, &e) != nil || e.Method == "" || len(e.ID) == 0 || string(e.ID) == "null" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending[canonical(e.ID)]++
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
	n, err := c.write(p)
	var e envelope
	if json.Unmarshal(p, &e) == nil && e.Method == "" && len(e.ID) > 0 {
		id := canonical(e.ID)
		if c.pending[id]--; c.pending[id] <= 0 {
			delete(c.pending, id)
		}
		c.cond.Broadcast()
	}
	return n, err
}

func (c *stdioClient) write(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.out.Write(p)
	if err != nil {
		c.err = err
		c.cond.Broadcast()
	}
	return n, err
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
