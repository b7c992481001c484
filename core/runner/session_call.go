package runner

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// calls are the calls of a Conn that have not been answered.
type calls struct {
	mu   sync.Mutex
	last uint32
	open map[uint32]*openCall
	err  error // the connection has ended
}

// openCall is a call that has not been answered.
type openCall struct {
	n    uint32
	conn *Conn
	// room is the credit for a file that is sent.
	room *protocol.Credit

	mu      sync.Mutex
	cond    *sync.Cond
	replies []protocol.SessionReply
	data    [][]byte
	held    int
	ended   bool // the last reply has come
	err     error
}

// call sends req. The end of ctx ends the call at both ends.
func (c *Conn) call(ctx context.Context, req protocol.SessionCall) (*openCall, func(), error) {
	if ctx.Err() != nil {
		return nil, nil, executor.Errorf(executor.Unavailable, "runner: %w", context.Cause(ctx))
	}
	k := &openCall{conn: c, room: protocol.NewCredit(protocol.FileWindow)}
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
			_ = c.out.SendJSON(protocol.FrameSession, protocol.SessionCall{N: k.n, Op: protocol.CallStop}) // a broken connection shows in the reader
		}
	}
	req.N = k.n
	raw, err := json.Marshal(req)
	if err != nil || len(raw) > protocol.MaxStart {
		k.end()
		done()
		return nil, nil, executor.Errorf(executor.Invalid, "runner: the request must be at most %d bytes", protocol.MaxStart)
	}
	if err := c.out.SendRaw(protocol.FrameSession, raw); err != nil {
		k.end()
		done()
		return nil, nil, executor.Errorf(executor.Unavailable, "runner: %w", err)
	}
	return k, done, nil
}

// ask is a call with one answer.
func (c *Conn) ask(ctx context.Context, req protocol.SessionCall) (protocol.SessionReply, error) {
	k, done, err := c.call(ctx, req)
	if err != nil {
		return protocol.SessionReply{}, err
	}
	defer done()
	return k.reply()
}

// reply waits for the next reply.
func (k *openCall) reply() (protocol.SessionReply, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.replies) == 0 && k.err == nil {
		k.cond.Wait()
	}
	if len(k.replies) == 0 {
		return protocol.SessionReply{}, k.err
	}
	r := k.replies[0]
	k.replies = k.replies[1:]
	return r, r.Err()
}

// next waits for a piece of a file. It returns nil if only replies are left.
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
	k.room.Stop(err)
}

func (k *openCall) end() {
	k.mu.Lock()
	k.ended = true
	k.mu.Unlock()
}

// lost ends all calls.
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

// take handles a frame about a call, in the goroutine of the reader. It drops frames of calls that have ended.
func (c *calls) take(frames *protocol.Reader, t protocol.FrameType, n int) error {
	if t == protocol.FrameSessionReply {
		var r protocol.SessionReply
		if err := protocol.ReadJSON(frames, n, &r); err != nil {
			return err
		}
		if k := c.find(r.N); k != nil {
			return k.takeReply(r)
		}
		return nil
	}
	p, err := frames.Payload(n)
	if err != nil {
		return err
	}
	if len(p) < protocol.CallHeaderBytes {
		return fmt.Errorf("%w: a call's frame of %d bytes", protocol.ErrFrame, len(p))
	}
	k := c.find(binary.BigEndian.Uint32(p))
	p = p[protocol.CallHeaderBytes:]
	switch {
	case k == nil:
		return nil
	case t == protocol.FrameSessionCredit && len(p) == 4:
		k.room.Add(int64(binary.BigEndian.Uint32(p)))
		return nil
	case t == protocol.FrameSessionFile:
		return k.takeData(p)
	default:
		return fmt.Errorf("%w: the runner sent frame type %d", protocol.ErrFrame, t)
	}
}

func (c *calls) find(n uint32) *openCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[n]
}

func (k *openCall) takeReply(r protocol.SessionReply) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	// A list comes in several replies, which MaxListed bounds together.
	if k.ended || len(k.replies) > protocol.MaxListed {
		return fmt.Errorf("%w: a call is answered too often", protocol.ErrFrame)
	}
	k.replies = append(k.replies, r)
	k.ended = !r.More
	k.cond.Broadcast()
	if k.ended {
		k.room.Stop(protocol.ErrStopped)
	}
	return nil
}

func (k *openCall) takeData(p []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held += len(p)
	if k.held > protocol.FileWindow {
		return fmt.Errorf("%w: the runner overran a file's window", protocol.ErrFrame)
	}
	k.data = append(k.data, append([]byte(nil), p...))
	k.cond.Broadcast()
	return nil
}
