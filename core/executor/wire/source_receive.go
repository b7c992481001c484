package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// feeds has the sources of a server's calls by key. A call and the Feed streams of its sources arrive in any order.
type feeds struct {
	pb.UnimplementedSourceServiceServer
	// remote: the callers are on other machines, so that names of files and sockets are not looked at.
	remote bool

	mu    sync.Mutex
	byKey map[string]*feed
}

// registerFeeds serves Feed on s.
func registerFeeds(s grpc.ServiceRegistrar, remote bool) *feeds {
	f := &feeds{remote: remote, byKey: map[string]*feed{}}
	pb.RegisterSourceServiceServer(s, f)
	return f
}

// get returns the feed of key. The first caller makes it.
func (f *feeds) get(key string) *feed {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.byKey[key]
	if one == nil {
		one = &feed{arrived: make(chan struct{}), over: make(chan struct{})}
		f.byKey[key] = one
	}
	return one
}

// drop ends one with err and forgets it.
func (f *feeds) drop(key string, one *feed, err error) {
	one.end(err)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byKey[key] == one {
		delete(f.byKey, key)
	}
}

// Feed implements pb.SourceServiceServer.
func (f *feeds) Feed(stream grpc.BidiStreamingServer[pb.FeedRequest, pb.FeedResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	key := first.GetKey()
	if key == "" {
		return executor.Errorf(executor.Invalid, "a feed must begin with a key")
	}
	one := f.get(key)
	if err := one.arrive(stream); err != nil {
		return err
	}
	defer f.drop(key, one, executor.ErrCallerGone)
	err = one.receive(stream)
	if err != nil {
		one.end(err)
	}
	return err
}

// inputs are the sources of one call on the side that reads them.
type inputs struct {
	feeds *feeds
	byKey map[string]*feed
}

// newInputs returns the inputs of a call that announces all.
func newInputs(f *feeds, all ...*pb.Source) *inputs {
	in := &inputs{feeds: f}
	for _, s := range all {
		if key := s.GetKey(); key != "" {
			if in.byKey == nil {
				in.byKey = map[string]*feed{}
			}
			in.byKey[key] = f.get(key)
		}
	}
	return in
}

// end ends every opening with err, and those to come.
func (in *inputs) end(err error) {
	for key, one := range in.byKey {
		in.feeds.drop(key, one, err)
	}
}

// source returns the Source that s announces; nil for nil.
func (in *inputs) source(s *pb.Source) *executor.Source {
	if s == nil {
		return nil
	}
	out := from[executor.Source](s)
	if in.feeds.remote {
		out.Path = ""
	}
	switch one := in.byKey[s.Key]; {
	case s.Inline != nil:
		out.Open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(s.Inline.GetData())), nil }
	case out.Path != "":
		out.Open = func() (io.ReadCloser, error) { return openFile(s.Path) }
	case one == nil:
		out.Open = func() (io.ReadCloser, error) {
			return nil, executor.Errorf(executor.Invalid, "a source must have a path, or a key if its sender is on another machine")
		}
	default:
		if !in.feeds.remote {
			one.socket = s.Socket
		}
		out.Open = one.open
	}
	return &out
}

// feed is one source on the side that reads it.
type feed struct {
	// arrived is closed when the stream is there.
	arrived chan struct{}
	// over is closed when the call or the stream has ended; err is set before.
	over chan struct{}

	// mu guards the stream's sending half and what follows.
	mu     sync.Mutex
	stream grpc.BidiStreamingServer[pb.FeedRequest, pb.FeedResponse]
	err    error
	// socket is the name of the socket for the first opening; empty if there is none, or it was used.
	socket string
	// readers are the openings whose end has not arrived. All but the last are closed.
	readers []*sourceReader
}

func (f *feed) arrive(stream grpc.BidiStreamingServer[pb.FeedRequest, pb.FeedResponse]) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stream != nil {
		return executor.Errorf(executor.Conflict, "duplicate feed of a source")
	}
	f.stream = stream
	close(f.arrived)
	return nil
}

// end ends every opening with err. The stream is not used any more.
func (f *feed) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
		close(f.over)
		for _, r := range f.readers {
			r.dropConn()
		}
	}
}

// receive hands what arrives to the openings, in their order. It returns nil when the stream or the call has ended, and
// an error when the caller breaks the protocol. A reader that takes its time holds up the stream, and so the sender.
func (f *feed) receive(stream grpc.BidiStreamingServer[pb.FeedRequest, pb.FeedResponse]) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the caller is gone, which is no fault of its own
		}
		var p part
		switch message := m.GetMessage().(type) {
		case *pb.FeedRequest_Data:
			p.data = message.Data
		case *pb.FeedRequest_End:
			p.err = endOf(message.End.GetError())
		default:
			return executor.Errorf(executor.Invalid, "a feed must have data or an end after its key")
		}
		r := f.reader()
		if r == nil {
			return executor.Errorf(executor.Invalid, "data of a source that is not open")
		}
		select {
		case r.parts <- p:
		case <-r.closed:
		case <-f.over:
			return nil
		}
		if p.err != nil {
			f.forget(r)
		}
	}
}

// reader returns the opening that the next part belongs to; nil if there is none.
func (f *feed) reader() *sourceReader {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.readers) == 0 {
		return nil
	}
	return f.readers[0]
}

func (f *feed) forget(r *sourceReader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers = slices.DeleteFunc(f.readers, func(other *sourceReader) bool { return other == r })
}

// open implements Source.Open. It waits until the stream is there.
func (f *feed) open() (io.ReadCloser, error) {
	select {
	case <-f.arrived:
	case <-f.over:
		return nil, f.err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	if n := len(f.readers); n > 0 && !f.readers[n-1].isClosed() {
		return nil, executor.Errorf(executor.Conflict, "the source is open already")
	}
	r := &sourceReader{feed: f, parts: make(chan part), closed: make(chan struct{}), conn: dial(f.socket)}
	f.socket = ""
	open := &pb.SourceOpen{Socket: r.conn != nil}
	if err := f.stream.Send(&pb.FeedResponse{Message: &pb.FeedResponse_Open{Open: open}}); err != nil {
		r.dropConn()
		return nil, executor.Errorf(executor.Unavailable, "open a source: %w", err)
	}
	f.readers = append(f.readers, r)
	return r, nil
}

// part is what one message has of an opening.
type part struct {
	data []byte
	// err ends the opening: io.EOF, or why there is no more.
	err error
}

var errSourceClosed = errors.New("read of a closed source")

// sourceReader is one opening on the side that reads it. It holds one part at a time.
type sourceReader struct {
	feed  *feed
	parts chan part
	// closed is closed by Close.
	closed chan struct{}
	once   sync.Once
	rest   part // used by Read only

	mu sync.Mutex
	// conn has the bytes of an opening that uses the socket, until its end.
	conn *net.UnixConn
}

var _ executor.FileStream = (*sourceReader)(nil)

func (r *sourceReader) isClosed() bool {
	select {
	case <-r.closed:
		return true
	default:
		return false
	}
}

// Read implements io.Reader.
func (r *sourceReader) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	r.mu.Lock()
	conn := r.conn
	r.mu.Unlock()
	if conn != nil {
		if n, err := conn.Read(b); n > 0 || err == nil {
			return n, nil
		}
		// The end of the socket may be the source's end, its failure or our own Close: the stream tells which.
		r.dropConn()
	}
	if r.isClosed() {
		return 0, errSourceClosed
	}
	for len(r.rest.data) == 0 {
		if r.rest.err != nil {
			return 0, r.rest.err
		}
		select {
		case r.rest = <-r.parts:
		case <-r.closed:
			return 0, errSourceClosed
		case <-r.feed.over:
			r.rest.err = r.feed.err
		}
	}
	n := copy(b, r.rest.data)
	r.rest.data = r.rest.data[n:]
	return n, nil
}

// TakeFile implements executor.FileStream.
func (r *sourceReader) TakeFile() *os.File {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		return nil
	}
	f, err := r.conn.File() // a duplicate
	if err != nil {
		return nil
	}
	_ = r.conn.Close()
	r.conn = nil
	return f
}

// dropConn closes the connection to the socket, if there is one.
func (r *sourceReader) dropConn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		_ = r.conn.Close() // it was only read
		r.conn = nil
	}
}

// Close implements io.Closer. The other side stops sending.
func (r *sourceReader) Close() error {
	r.once.Do(func() {
		close(r.closed)
		r.dropConn()
		f := r.feed
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.err == nil && slices.Contains(f.readers, r) {
			// If this cannot be sent the stream is at its end, and so is the source.
			_ = f.stream.Send(&pb.FeedResponse{Message: &pb.FeedResponse_Close{Close: &pb.SourceClose{}}})
		}
	})
	return nil
}
