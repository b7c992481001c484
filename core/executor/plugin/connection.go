package plugin

import (
	"context"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor/wire"
)

// NewBackend returns the Backend of the process that current returns at the start of a call. The call stays with that
// process to its end. An error of current is the call's.
func NewBackend(current func() (*Process, error)) wire.Backend {
	return wire.NewBackend(connection(current), func() string {
		p, err := current()
		if err != nil || !p.Info().Capabilities.LocalPath {
			return ""
		}
		return p.dir
	}, func() bool {
		p, err := current()
		return err == nil && p.supervision.InlineSources()
	})
}

// connection is the connection to the present process. Each call passes the gate of its process.
type connection func() (*Process, error)

var _ grpc.ClientConnInterface = connection(nil)

// enter returns the present process, whose gate has admitted a call.
func (c connection) enter() (*Process, error) {
	p, err := c()
	if err != nil {
		return nil, err
	}
	return p, p.gate.enter()
}

// Invoke implements grpc.ClientConnInterface.
func (c connection) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	p, err := c.enter()
	if err != nil {
		return err
	}
	defer p.gate.leave()
	return p.dispensed.conn.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (c connection) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	p, err := c.enter()
	if err != nil {
		return nil, err
	}
	// gRPC calls OnFinish exactly once, also for a stream that it could not open.
	return p.dispensed.conn.NewStream(ctx, desc, method, append(opts, grpc.OnFinish(func(error) { p.gate.leave() }))...)
}
