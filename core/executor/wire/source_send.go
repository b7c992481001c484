package wire

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

const (
	// chunkBytes is the maximum of a source's or an artifact's bytes in one message.
	chunkBytes = 256 << 10
	// inlineBytes is the largest source that travels in the message that announces it.
	inlineBytes = 16 << 10
	// sourceGrace bounds how long the end of a call waits for a Read of a source that Close does not end.
	sourceGrace = 2 * time.Second
)

// feeder sends the sources of one call, each on a Feed stream of its own.
type feeder struct {
	client pb.SourceServiceClient
	ctx    context.Context // ends with the call, or with stop
	end    context.CancelCauseFunc
	// cut ends the call because a stream of its sources broke.
	cut context.CancelCauseFunc
	// inline says that the other side takes small sources in the message that announces them.
	inline bool
	// busy says that a source is served.
	busy bool
	wg   sync.WaitGroup
}

// newFeeder returns the feeder of the call of ctx, which cut ends.
func newFeeder(ctx context.Context, cut context.CancelCauseFunc, client pb.SourceServiceClient) *feeder {
	ctx, end := context.WithCancelCause(ctx)
	return &feeder{client: client, ctx: ctx, end: end, cut: cut}
}

// pace says when the bytes of a source are sent.
type pace func(r io.Reader, b []byte) (int, error)

var (
	// inChunks fills each message: a tar is read as a whole.
	inChunks pace = func(r io.Reader, b []byte) (int, error) {
		n, err := io.ReadFull(r, b)
		if err == io.ErrUnexpectedEOF {
			err = io.EOF
		}
		return n, err
	}
	// atOnce sends what a Read returns: a program may wait for it.
	atOnce pace = io.Reader.Read
)

// announce returns src as the other side sees it, nil for nil, and serves its openings until the call ends. dir is
// NewBackend's localDir.
func (f *feeder) announce(src *executor.Source, read pace, dir string) (*pb.Source, error) {
	if src == nil {
		return nil, nil
	}
	out := to[pb.Source](*src)
	if dir == "" {
		out.Path = "" // the other side does not have the file
	}
	if out.Path != "" {
		return out, nil
	}
	if f.inline {
		if out.Inline = inlineOf(src); out.Inline != nil {
			return out, nil
		}
	}
	out.Key = rand.Text()
	stream, err := f.client.Feed(outgoing(f.ctx))
	if err != nil {
		return nil, fromStatus(f.ctx, err)
	}
	// Why a message cannot be sent is what Recv returns.
	_ = stream.Send(&pb.FeedRequest{Message: &pb.FeedRequest_Key{Key: out.Key}})
	s := &sourceSender{src: src, read: read, stream: stream, wg: &f.wg}
	if dir != "" && isBulky(src) {
		if s.socket = offer(dir); s.socket != nil {
			out.Socket = s.socket.path
		}
	}
	f.busy = true
	f.wg.Go(func() {
		if err := s.serve(); f.ctx.Err() == nil && !errors.Is(err, io.EOF) {
			f.cut(fromStatus(f.ctx, err))
		}
	})
	return out, nil
}

// inlineOf returns the content of a small source, which is at hand because it is Replayable. It returns nil for another source, and where the
// content cannot be read or has another size than announced. The reader of a Feed stream then gets the error.
func inlineOf(src *executor.Source) *pb.InlineSource {
	if !src.Replayable || src.SizeBytes < 0 || src.SizeBytes > inlineBytes || src.Open == nil {
		return nil
	}
	rc, err := src.Open()
	if err != nil {
		return nil
	}
	defer rc.Close()
	data, err := io.ReadAll(io.LimitReader(rc, src.SizeBytes+1))
	if err != nil || int64(len(data)) != src.SizeBytes {
		return nil
	}
	return &pb.InlineSource{Data: data}
}

// stop ends every opening. After the call no source is read: stop waits for the reads that are under way. A Read that
// Close does not end is waited for until sourceGrace has passed.
func (f *feeder) stop() {
	f.end(nil)
	if !f.busy {
		return
	}
	done := make(chan struct{})
	go func() {
		f.wg.Wait()
		close(done)
	}()
	timer := time.NewTimer(sourceGrace)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// sourceSender serves the openings of one source, one after another.
type sourceSender struct {
	src    *executor.Source
	read   pace
	stream grpc.BidiStreamingClient[pb.FeedRequest, pb.FeedResponse]
	// socket is where the bytes of the first opening may go; nil if there is none.
	socket *socket
	wg     *sync.WaitGroup
}

// serve returns why the stream has ended: io.EOF if the other side wants no more.
func (s *sourceSender) serve() error {
	defer s.socket.close()
	last := &opening{sent: make(chan struct{})}
	close(last.sent)
	for {
		m, err := s.stream.Recv()
		if err != nil {
			last.close()
			return err
		}
		switch message := m.GetMessage().(type) {
		case *pb.FeedResponse_Open:
			before := last.sent
			o := &opening{sent: make(chan struct{})}
			last = o
			s.wg.Go(func() {
				<-before
				s.send(o, message.Open.GetSocket())
			})
		case *pb.FeedResponse_Close:
			s.wg.Go(last.close) // a Close may block
		}
	}
}

// send sends one opening to its end.
func (s *sourceSender) send(o *opening, socket bool) {
	defer close(o.sent)
	err := s.copy(o, socket)
	o.close()
	_ = s.stream.Send(&pb.FeedRequest{Message: &pb.FeedRequest_End{End: &pb.SourceEnd{Error: toError(err)}}})
}

func (s *sourceSender) copy(o *opening, socket bool) error {
	if s.src.Open == nil {
		return executor.Errorf(executor.Internal, "the source cannot be opened")
	}
	if socket {
		return o.pour(s.socket, s.src)
	}
	rc, err := s.src.Open()
	if err != nil {
		return err
	}
	if !o.opened(rc) {
		return nil
	}
	size := int64(chunkBytes)
	if s.src.SizeBytes >= 0 {
		size = min(size, s.src.SizeBytes+1) // one more, so that the first read finds the end
	}
	buf := make([]byte, size)
	for {
		n, err := s.read(rc, buf)
		if n > 0 {
			// gRPC has copied the bytes when this returns, so buf is free again.
			if err := s.stream.Send(&pb.FeedRequest{Message: &pb.FeedRequest_Data{Data: buf[:n]}}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if n == len(buf) && n < chunkBytes { // the source is larger than it said
			buf = make([]byte, chunkBytes)
		}
	}
}

// opening is one opened source on the side that has it.
type opening struct {
	// sent is closed when the end of the opening was sent.
	sent chan struct{}

	mu     sync.Mutex
	ends   []io.Closer
	closed bool
}

// opened keeps c for close. If close came first it closes c and returns false.
func (o *opening) opened(c io.Closer) bool {
	o.mu.Lock()
	if !o.closed {
		o.ends = append(o.ends, c)
		o.mu.Unlock()
		return true
	}
	o.mu.Unlock()
	_ = c.Close()
	return false
}

// close closes what was opened, once. It may be called while a Read is under way, to end it.
func (o *opening) close() {
	o.mu.Lock()
	ends := o.ends
	o.ends, o.closed = nil, true
	o.mu.Unlock()
	for _, c := range ends {
		_ = c.Close()
	}
}
