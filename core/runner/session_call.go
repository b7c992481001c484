package runner

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// What a sessionCall asks for.
const (
	callOpen      = "open"
	callRestart   = "restart"
	callClose     = "close"
	callVariables = "variables"
	callPath      = "path"
	callList      = "list"
	callRead      = "read"
	callWrite     = "write"
	callRemove    = "remove"
	// callStop ends the call of that number; its answer comes as always.
	callStop = "stop"
)

// The windows and bounds of calls.
const (
	// fileWindow is how many bytes of a file may be on their way, in either direction.
	fileWindow = 1 << 20
	// maxCalls bounds the calls that are at work at once.
	maxCalls = 64
	// maxFiles and maxVariables are the contract's.
	maxListed    = 10_000
	maxVariables = 1000
)

// sessionCall asks for something about the session. Several may be at work at once; N tells them apart.
type sessionCall struct {
	N     uint32        `json:"n"`
	Op    string        `json:"op"`
	Start *SessionStart `json:"start,omitempty"`
	Wipe  bool          `json:"wipe,omitempty"`
	// Path of a file, or the folder of callPath.
	Path      string `json:"path,omitempty"`
	Recursive bool   `json:"recursive,omitempty"`
	// Size of a file that is to be written; < 0 = unknown.
	Size int64 `json:"size,omitempty"`
}

// sessionReply answers a call. The last one has no More.
type sessionReply struct {
	N         uint32              `json:"n"`
	More      bool                `json:"more,omitempty"`
	Code      executor.Code       `json:"code,omitempty"`
	Message   string              `json:"message,omitempty"`
	Field     string              `json:"field,omitempty"`
	File      *executor.File      `json:"file,omitempty"`
	Files     []executor.File     `json:"files,omitempty"`
	Variables []executor.Variable `json:"variables,omitempty"`
}

func (r sessionReply) err() error {
	switch {
	case r.Code == "":
		return nil
	case r.Field != "":
		return &executor.Error{Code: r.Code, Message: r.Message, Fields: []executor.FieldError{{Field: r.Field, Message: r.Message}}}
	default:
		return executor.Errorf(r.Code, "%s", r.Message)
	}
}

// calls are the calls of a Conn that have not been answered.
type calls struct {
	mu   sync.Mutex
	last uint32
	open map[uint32]*openCall
	err  error // the connection has ended
}

// openCall is one of them.
type openCall struct {
	n    uint32
	conn *Conn
	// room is what the runner takes of a file yet.
	room *credit

	mu      sync.Mutex
	cond    *sync.Cond
	replies []sessionReply
	data    [][]byte
	held    int
	ended   bool // the last reply has come
	err     error
}

// call asks for req. The end of ctx ends the call at both ends.
func (c *Conn) call(ctx context.Context, req sessionCall) (*openCall, func(), error) {
	if ctx.Err() != nil {
		return nil, nil, executor.Errorf(executor.Unavailable, "runner: %w", context.Cause(ctx))
	}
	k := &openCall{conn: c, room: newCredit(fileWindow)}
	k.cond = sync.NewCond(&k.mu)
	c.calls.mu.Lock()
	if err := c.calls.err; err != nil {
		c.calls.mu.Unlock()
		return nil, nil, executor.Errorf(executor.Unavailable, "runner: %w", err)
	}
	c.calls.last++
	k.n = c.calls.last
	if c.calls.open == nil {
		c.calls.open = map[uint32]*openCall{}
	}
	c.calls.open[k.n] = k
	c.calls.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		k.fail(executor.Errorf(executor.Unavailable, "runner: %w", context.Cause(ctx)))
	})
	done := func() {
		stop()
		c.calls.mu.Lock()
		delete(c.calls.open, k.n)
		c.calls.mu.Unlock()
		k.mu.Lock()
		ended := k.ended
		k.mu.Unlock()
		if !ended {
			_ = c.out.json(frameSession, sessionCall{N: k.n, Op: callStop}) // a broken connection shows in the reader
		}
	}
	req.N = k.n
	raw, err := json.Marshal(req)
	if err != nil || len(raw) > maxStart {
		k.end()
		done()
		return nil, nil, executor.Errorf(executor.Invalid, "runner: more than %d bytes about a session", maxStart)
	}
	if err := c.out.raw(frameSession, raw); err != nil {
		k.end()
		done()
		return nil, nil, executor.Errorf(executor.Unavailable, "runner: %w", err)
	}
	return k, done, nil
}

// ask is a call with one answer.
func (c *Conn) ask(ctx context.Context, req sessionCall) (sessionReply, error) {
	k, done, err := c.call(ctx, req)
	if err != nil {
		return sessionReply{}, err
	}
	defer done()
	return k.reply()
}

// reply waits for the next reply.
func (k *openCall) reply() (sessionReply, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.replies) == 0 && k.err == nil {
		k.cond.Wait()
	}
	if len(k.replies) == 0 {
		return sessionReply{}, k.err
	}
	r := k.replies[0]
	k.replies = k.replies[1:]
	return r, r.err()
}

// next waits for a piece of a file; nil: what remains are replies.
func (k *openCall) next() ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.data) == 0 && len(k.replies) == 0 && k.err == nil {
		k.cond.Wait()
	}
	if len(k.data) > 0 {
		p := k.data[0]
		k.data[0] = nil
		k.data = k.data[1:]
		k.held -= len(p)
		return p, nil
	}
	if len(k.replies) > 0 {
		return nil, nil
	}
	return nil, k.err
}

func (k *openCall) fail(err error) {
	k.mu.Lock()
	if k.err == nil {
		k.err = err
	}
	k.cond.Broadcast()
	k.mu.Unlock()
	k.room.stop(err)
}

func (k *openCall) end() {
	k.mu.Lock()
	k.ended = true
	k.mu.Unlock()
}

// lost ends every call.
func (c *calls) lost(err error) {
	c.mu.Lock()
	c.err = err
	open := c.open
	c.open = nil
	c.mu.Unlock()
	for _, k := range open {
		k.end()
		k.fail(executor.Errorf(executor.Unavailable, "runner: %w", err))
	}
}

// take handles a frame about a call, on the reader's goroutine. What is about a call that nobody waits for is dropped.
func (c *calls) take(frames *frameReader, t frameType, n int) error {
	if t == frameSessionReply {
		var r sessionReply
		if err := readJSON(frames, n, &r); err != nil {
			return err
		}
		if k := c.find(r.N); k != nil {
			return k.takeReply(r)
		}
		return nil
	}
	p, err := frames.payload(n)
	if err != nil {
		return err
	}
	if len(p) < callHeader {
		return fmt.Errorf("%w: a call's frame of %d bytes", errFrame, len(p))
	}
	k := c.find(binary.BigEndian.Uint32(p))
	p = p[callHeader:]
	switch {
	case k == nil:
		return nil
	case t == frameSessionCredit && len(p) == 4:
		k.room.add(int64(binary.BigEndian.Uint32(p)))
		return nil
	case t == frameSessionFile:
		return k.takeData(p)
	default:
		return fmt.Errorf("%w: the runner sent frame type %d", errFrame, t)
	}
}

func (c *calls) find(n uint32) *openCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[n]
}

func (k *openCall) takeReply(r sessionReply) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	// A list comes in several replies, which together are bounded by what may be in it.
	if k.ended || len(k.replies) > maxListed {
		return fmt.Errorf("%w: a call is answered too often", errFrame)
	}
	k.replies = append(k.replies, r)
	k.ended = !r.More
	k.cond.Broadcast()
	if k.ended {
		k.room.stop(errStopped)
	}
	return nil
}

func (k *openCall) takeData(p []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held += len(p)
	if k.held > fileWindow {
		return fmt.Errorf("%w: the runner overran a file's window", errFrame)
	}
	k.data = append(k.data, append([]byte(nil), p...))
	k.cond.Broadcast()
	return nil
}

func callPayload(n uint32, more ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, n), more...)
}

func callCredit(n uint32, bytes int) []byte {
	return binary.BigEndian.AppendUint32(callPayload(n), uint32(bytes)) //nolint:gosec // at most a window
}
