package mcpfrontend

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// notifier writes a notification to the client of one request, before the result of that request. mcp-go sends notifications
// through a channel instead. That channel drops and reorders them, and over HTTP can send them to the stream of another
// request.
type notifier func(message []byte) error

type notifierKey struct{}

func withNotifier(ctx context.Context, n notifier) context.Context {
	return context.WithValue(ctx, notifierKey{}, n)
}

// notify sends one notification to the client of the request that ctx belongs to. Errors are ignored, because the result
// follows anyway.
func notify(ctx context.Context, method string, params any) {
	n, ok := ctx.Value(notifierKey{}).(notifier)
	if !ok {
		return
	}
	raw, err := json.Marshal(struct {
		JSONRPC string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{mcp.JSONRPC_VERSION, method, params})
	if err == nil {
		_ = n(raw)
	}
}

// progressEvery is the minimum time between two progress reports of a call.
const progressEvery = 100 * time.Millisecond

// progress sends progress notifications for one call, if the client has asked for them. It is safe for concurrent use.
type progress struct {
	ctx   context.Context   //nolint:containedctx // the context of the call
	token mcp.ProgressToken // nil: the client has not asked for progress

	mu   sync.Mutex
	last time.Time
	n    float64
}

// newProgress returns the progress of the call request.
func newProgress(ctx context.Context, request mcp.CallToolRequest) *progress {
	p := &progress{ctx: ctx}
	if request.Params.Meta != nil {
		p.token = request.Params.Meta.ProgressToken
	}
	return p
}

// say sends message with an increasing value, as the protocol requires. A message that comes within progressEvery of the one
// before is dropped, unless must is true.
func (p *progress) say(message string, must bool) {
	if p.token == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !must && now.Sub(p.last) < progressEvery {
		return
	}
	p.last = now
	p.n++
	notify(p.ctx, "notifications/progress", map[string]any{"progressToken": p.token, "progress": p.n, "message": message})
}
