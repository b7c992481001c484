package wire

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

const (
	// chunkBytes is the most that one message carries of a source or an artifact (prototypes.md §4).
	chunkBytes = 256 << 10
	// windowBytes is how much of a source may be under way unread. The credit is ours, not gRPC's, because gRPC's would
	// also hold back what shares the stream with it: acknowledgements and cancel.
	windowBytes = 4 * chunkBytes
	// sourceGrace bounds the wait for a source's Read that nothing unblocks, at the end of a call.
	sourceGrace = 2 * time.Second
)

// The names of a call's sources.
const (
	workspaceName = "workspace"
	stdinName     = "stdin"
)

// announce is s as the other side sees it; nil for nil. The path goes with it only to a peer that shares our files.
func announce(s *executor.Source, withPath bool) *pb.Source {
	if s == nil {
		return nil
	}
	out := &pb.Source{Digest: s.Digest, SizeBytes: s.SizeBytes, Replayable: s.Replayable}
	if withPath {
		out.Path = s.Path
	}
	return out
}

// feeder serves the openings of the caller's sources to the other side.
type feeder struct {
	sources map[string]*executor.Source
	// stream is where the workspace's first opening may go; nil: nowhere.
	stream *stream
	send   func(*pb.SourceReply) error

	mu       sync.Mutex
	stopped  bool
	openings map[uint64]*opening
	wg       sync.WaitGroup
}

func newFeeder(workspace, stdin *executor.Source, s *stream, send func(*pb.SourceReply) error) *feeder {
	return &feeder{
		sources:  map[string]*executor.Source{workspaceName: workspace, stdinName: stdin},
		stream:   s,
		send:     send,
		openings: map[uint64]*opening{},
	}
}

// handle takes a request of the other side. It does not block: it runs on the goroutine that receives.
func (f *feeder) handle(r *pb.SourceRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		return
	}
	o := f.openings[r.GetId()]
	switch action := r.GetAction().(type) {
	case *pb.SourceRequest_Open:
		if o != nil {
			return
		}
		o = &opening{id: r.GetId(), name: action.Open.GetName(), credit: action.Open.GetCredit(), streamed: action.Open.GetStream()}
		o.more.L = &o.mu
		f.openings[o.id] = o
		f.wg.Go(func() { f.feed(o) })
	case *pb.SourceRequest_Credit:
		if o != nil {
			o.grant(action.Credit)
		}
	case *pb.SourceRequest_Close:
		if o != nil {
			f.wg.Go(o.close)
		}
	}
}

// feed sends one opening to its end.
func (f *feeder) feed(o *opening) {
	err := f.copy(o)
	o.close()
	f.mu.Lock()
	delete(f.openings, o.id)
	f.mu.Unlock()
	// If this cannot be sent, the stream is at its end, and so is the reader.
	_ = f.send(&pb.SourceReply{Id: o.id, Part: &pb.SourceReply_End{End: &pb.SourceEnd{Error: toError(err)}}})
}

func (f *feeder) copy(o *opening) error {
	src := f.sources[o.name]
	if src == nil || src.Open == nil {
		return executor.Errorf(executor.Internal, "the call has no %q to open", o.name)
	}
	if o.streamed {
		return o.pour(f.stream, src)
	}
	rc, err := src.Open()
	if err != nil {
		return err
	}
	if !o.opened(rc) {
		return nil
	}
	// A tar is sent in full chunks, whatever the size of its reads; what a program waits for on stdin is sent at once.
	read := rc.Read
	if o.name == workspaceName {
		read = func(b []byte) (int, error) {
			n, err := io.ReadFull(rc, b)
			if err == io.ErrUnexpectedEOF {
				err = io.EOF
			}
			return n, err
		}
	}
	buf := make([]byte, chunkBytes)
	for {
		n := o.take(chunkBytes)
		if n == 0 {
			return nil
		}
		got, err := read(buf[:n])
		o.grant(int64(n - got))
		if got > 0 {
			// gRPC has copied the bytes when this returns, so buf is free again.
			if sendErr := f.send(&pb.SourceReply{Id: o.id, Part: &pb.SourceReply_Data{Data: buf[:got]}}); sendErr != nil {
				return sendErr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// stop ends every opening. It waits for the readers, so that nobody reads a source after the call, but not for ever: a
// Read that Close does not unblock ends when its owner ends it.
func (f *feeder) stop() {
	f.mu.Lock()
	f.stopped = true
	f.stream.close()
	for _, o := range f.openings {
		f.wg.Go(o.close)
	}
	f.mu.Unlock()
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

// opening is one opened source on the side that has it.
type opening struct {
	id       uint64
	name     string
	streamed bool

	mu     sync.Mutex
	more   sync.Cond
	credit int64
	ends   []io.Closer
	closed bool
}

// opened keeps c for close; false (and c closed) if close came first.
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

func (o *opening) grant(n int64) {
	o.mu.Lock()
	o.credit += n
	o.mu.Unlock()
	o.more.Broadcast()
}

// take waits for credit and takes at most limit of it; 0 when closed.
func (o *opening) take(limit int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.credit <= 0 && !o.closed {
		o.more.Wait()
	}
	if o.closed {
		return 0
	}
	n := int(min(int64(limit), o.credit))
	o.credit -= int64(n)
	return n
}

// close closes what was opened, once; it may be called while a Read is under way, to end it.
func (o *opening) close() {
	o.mu.Lock()
	ends := o.ends
	o.ends, o.closed = nil, true
	o.mu.Unlock()
	o.more.Broadcast()
	for _, c := range ends {
		_ = c.Close()
	}
}
