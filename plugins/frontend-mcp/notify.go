package mcpfrontend

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// notifier writes a notification to the client of the request that ctx belongs to, before that request's result. mcp-go's
// own way goes through a channel that drops, reorders and, over HTTP, hands it to another request's stream.
type notifier func(message []byte) error

type notifierKey struct{}

func withNotifier(ctx context.Context, n notifier) context.Context {
	return context.WithValue(ctx, notifierKey{}, n)
}

// notify sends one notification; one that cannot be sent is not missed: the result follows.
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

// progressEvery is how often a call reports its progress at most.
const progressEvery = 100 * time.Millisecond

// progress reports how a call is getting on, if the client asked for it. It is used by one goroutine at a time.
type progress struct {
	ctx   context.Context //nolint:containedctx // it is part of one call
	token mcp.ProgressToken

	mu   sync.Mutex
	last time.Time
	n    float64
}

// newProgress is for the call that request is; what was not asked for costs nothing.
func newProgress(ctx context.Context, request mcp.CallToolRequest) *progress {
	p := &progress{ctx: ctx}
	if request.Params.Meta != nil {
		p.token = request.Params.Meta.ProgressToken
	}
	return p
}

// say reports message. Values increase, as the protocol wants; what comes too often is left out unless it must be said.
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
