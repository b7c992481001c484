package batch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/job"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// feedPause is the time between two attempts to reach a server, or the runner of the program.
const feedPause = 100 * time.Millisecond

// feedMain passes a standard input on, and waits to be stopped: a place may start a task again that has ended.
func feedMain(input, output, _ string) int {
	ctx, stop := signalled()
	defer stop()
	var in job.Feed
	if err := job.ReadInput(input, job.FeedFile, &in); err != nil {
		say(err)
		return ExitNotRun
	}
	if err := feed(ctx, in.URL, filepath.Join(output, job.FeedSocket)); err != nil {
		say(err)
		return ExitNotRun
	}
	<-ctx.Done()
	return 0
}

// feed passes an input on to the socket at path. It returns nil at the end of the input, if the program reads no more, and when ctx ends.
func feed(ctx context.Context, address, path string) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	if u.Scheme != "http" {
		return fmt.Errorf("%s: must be an http URL", u.Redacted())
	}
	var to net.Conn
	for to == nil {
		if to, err = net.Dial("unix", path); err != nil && !rest(ctx) { //nolint:gosec // the path is the host's. The runner of the program may not have started
			return nil //nolint:nilerr // stopped
		}
	}
	defer to.Close() //nolint:errcheck // the program sees the end
	defer context.AfterFunc(ctx, func() { _ = to.Close() })()
	f := &feeder{url: u, to: to}
	for said := ""; ; {
		err := f.pass(ctx)
		if err == nil || errors.Is(err, errUnread) || !rest(ctx) {
			return nil
		}
		if err.Error() != said { // once, not ten times a second
			said = err.Error()
			say(fmt.Errorf("standard input: %w", err))
		}
	}
}

// rest waits for feedPause. It reports false if ctx ended.
func rest(ctx context.Context) bool {
	select {
	case <-time.After(feedPause):
		return true
	case <-ctx.Done():
		return false
	}
}

// errUnread says that the program reads no more.
var errUnread = errors.New("the program reads no more")

// feeder passes an input on from a server to a program.
type feeder struct {
	url    *url.URL
	to     io.Writer
	passed int64
}

// pass asks for what was not passed on yet, and passes it on. It returns nil at the end of the input.
func (f *feeder) pass(ctx context.Context) error {
	host := f.url.Host
	if f.url.Port() == "" {
		host = net.JoinHostPort(f.url.Hostname(), "80")
	}
	conn, err := (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext(ctx, "tcp", host)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is written any more
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	// An answer to HTTP/1.0 is plain bytes up to the end of the connection. net/http would double the size of the runner.
	if _, err = fmt.Fprintf(conn, "GET %s?from=%d HTTP/1.0\r\nHost: %s\r\n\r\n", f.url.EscapedPath(), f.passed, f.url.Host); err != nil {
		return err
	}
	in := bufio.NewReader(conn)
	head := textproto.NewReader(in)
	line, err := head.ReadLine()
	if err == nil {
		_, err = head.ReadMIMEHeader()
	}
	if err != nil {
		return err
	}
	_, status, _ := strings.Cut(line, " ")
	switch {
	case strings.HasPrefix(status, "4"):
		return nil
	case !strings.HasPrefix(status, "200"):
		return fmt.Errorf("the server answered %q", line)
	}
	return f.copy(protocol.NewReader(in))
}

// copy passes the content of frames on. It returns nil after the last one.
func (f *feeder) copy(frames *protocol.Reader) error {
	for {
		kind, n, err := frames.Header()
		if err != nil {
			return err
		}
		switch kind {
		case protocol.FrameStdinEnd:
			return nil
		case protocol.FrameStdin:
		default:
			return fmt.Errorf("frame type %d in a standard input", kind)
		}
		data, err := frames.Payload(n)
		if err != nil {
			return err
		}
		if _, err = f.to.Write(data); err != nil {
			return errUnread
		}
		f.passed += int64(n)
	}
}

// feedInput is the standard input that job-feed brings.
type feedInput struct {
	listener *net.UnixListener

	mu     sync.Mutex
	conn   net.Conn
	closed bool
}

// listenForInput makes the socket at path. Codes: internal.
func listenForInput(path string) (*feedInput, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, executor.Errorf(executor.Internal, "standard input: %w", err)
	}
	if err = os.Chmod(path, 0o600); err != nil { // programs may reach the folder
		return nil, executor.Errorf(executor.Internal, "standard input: %w", errors.Join(err, l.Close()))
	}
	return &feedInput{listener: l}, nil
}

// Read implements io.Reader. An input that breaks off ends: who sends it knows, and job does not.
func (f *feedInput) Read(p []byte) (int, error) {
	conn, err := f.accepted()
	if err != nil {
		return 0, err
	}
	n, err := conn.Read(p)
	if err != nil {
		err = io.EOF
	}
	return n, err
}

// accepted returns the connection of job-feed, for which it waits the first time. Only one goroutine reads.
func (f *feedInput) accepted() (net.Conn, error) {
	if f.conn != nil {
		return f.conn, nil
	}
	conn, err := f.listener.Accept()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && f.closed {
		err = errors.Join(io.ErrClosedPipe, conn.Close())
	}
	if err != nil {
		return nil, err
	}
	f.conn = conn
	return conn, f.listener.Close() // nobody else gets in
}

// Close implements io.Closer. It ends a Read that waits.
func (f *feedInput) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.conn != nil {
		return f.conn.Close()
	}
	return f.listener.Close()
}
