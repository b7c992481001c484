package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/core/runner/job"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

const (
	// feedFolder is the folder that the program's task and the one that brings its standard input share.
	feedFolder = "/alloc/data"
	// feedPatience is the default of Backend.feedPatience.
	feedPatience = 100 * time.Millisecond
)

// feedLimits are those of the task that brings a standard input. It runs nothing but the runner.
var feedLimits = executor.Limits{MemoryBytes: 32 << 20, CPUShares: 20, PIDs: 16}

// feed is the standard input of an Execution that is passed on while it is written.
type feed struct {
	source *runner.SourceReader
	head   []byte
	in     net.Conn // what follows head, up to the end or to failed
	failed error    // set before in ends

	turn chan struct{} // held by the request that gets the input, with head and sent
	sent int64

	mu     sync.Mutex
	last   int                      // the number of the last request
	out    *http.ResponseController // of the one that has the turn
	broken context.CancelCauseFunc
}

// openFeed reads source for patience. It returns the content if that is all and not larger than room, or a feed.
func openFeed(source *runner.SourceReader, room int, patience time.Duration) (whole []byte, f *feed, err error) {
	ours, theirs := net.Pipe()
	f = &feed{source: source, in: ours, turn: make(chan struct{}, 1)}
	go func() {
		if _, err := io.Copy(theirs, source); err != nil {
			f.failed = inputError(err)
		}
		_ = theirs.Close() // no error
	}()
	_ = ours.SetReadDeadline(time.Now().Add(patience)) // no error
	f.head, err = io.ReadAll(io.LimitReader(ours, int64(room)+1))
	if err != nil || len(f.head) > room { // the deadline, or there is more
		return nil, f, nil
	}
	return f.head, nil, errors.Join(f.failed, f.close())
}

// close ends the input, and a request that gets it.
func (f *feed) close() error { return errors.Join(f.source.Close(), f.in.Close()) }

// whenBroken sets what is called when the input did not arrive whole, by our failure.
func (f *feed) whenBroken(broken context.CancelCauseFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = broken
}

// breaks ends the Execution.
func (f *feed) breaks(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		f.broken(err)
	}
}

// errInputCut is the failure of an input of which a part is lost.
var errInputCut = executor.Errorf(executor.Unavailable, "the connection to the node broke off, and a part of the standard input is lost")

// take waits until the input is the caller's. It ends a former request, whose connection the server may not know to be broken. It returns
// false if another request has come meanwhile.
func (f *feed) take(out *http.ResponseController) bool {
	f.mu.Lock()
	f.last++
	mine := f.last
	_ = f.in.SetReadDeadline(time.Now()) // no error
	if f.out != nil {
		_ = f.out.SetWriteDeadline(time.Now()) // its connection is of no use
	}
	f.mu.Unlock()
	f.turn <- struct{}{}
	f.mu.Lock()
	defer f.mu.Unlock()
	if mine != f.last {
		<-f.turn
		return false
	}
	f.out = out
	_ = f.in.SetReadDeadline(time.Time{}) // no error
	return true
}

// leave lets the next request take the input.
func (f *feed) leave() {
	f.mu.Lock()
	f.out = nil
	f.mu.Unlock()
	<-f.turn
}

// send writes what follows the first from bytes, as frames.
func (f *feed) send(w http.ResponseWriter, from int64) {
	out := http.NewResponseController(w)
	if !f.take(out) {
		return
	}
	defer f.leave()
	if from < f.sent {
		f.breaks(errInputCut)
		http.Error(w, errInputCut.Error(), http.StatusConflict)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("X-Accel-Buffering", "no") // for a proxy
	if out.Flush() != nil {
		return
	}
	buf := make([]byte, protocol.HeaderBytes+protocol.ChunkBytes)
	frame := func(t protocol.FrameType, n int) error {
		protocol.PutHeader(buf, t, n)
		_, err := w.Write(buf[:protocol.HeaderBytes+n])
		return errors.Join(err, out.Flush())
	}
	for {
		n, err := f.read(buf[protocol.HeaderBytes:])
		passed := int(min(int64(n), max(0, from-f.sent))) // a former process of this backend has sent that
		f.sent += int64(n)
		if n -= passed; passed > 0 {
			copy(buf[protocol.HeaderBytes:], buf[protocol.HeaderBytes+passed:][:n])
		}
		if n > 0 && frame(protocol.FrameStdin, n) != nil {
			return // the program reads no more, or another request has come
		}
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			panic(http.ErrAbortHandler) // closed, or another request has come
		case f.failed != nil:
			f.breaks(f.failed)
			panic(http.ErrAbortHandler)
		default:
			_ = frame(protocol.FrameStdinEnd, 0) // as above
			return
		}
	}
}

// read reads head, then in.
func (f *feed) read(p []byte) (int, error) {
	if n := copy(p, f.head); n > 0 {
		f.head = f.head[n:]
		return n, nil
	}
	return f.in.Read(p)
}

// offer serves a feed to the node until withdraw is called. Codes: internal.
func (t *transfer) offer(id string, f *feed, expires time.Time) (address string, err error) {
	t.mu.Lock()
	t.feeds[id] = f
	t.mu.Unlock()
	// A request may come to another process of the data folder, which looks here for who has the feed.
	if err := writeSynced(t.feedNote(id), []byte(t.inner.Addr().String())); err != nil {
		return "", errors.Join(executor.Errorf(executor.Internal, "keep the input: %w", err), t.withdraw(id))
	}
	return t.base + "/feed/" + id + "/" + t.token(id, taskFeed, expires), nil
}

// withdraw ends the feed of a job, if there is one.
func (t *transfer) withdraw(id string) error {
	t.mu.Lock()
	f := t.feeds[id]
	delete(t.feeds, id)
	t.mu.Unlock()
	if f == nil {
		return nil
	}
	return errors.Join(os.Remove(t.feedNote(id)), f.close())
}

func (t *transfer) feedNote(id string) string { return t.input(id, taskFeed) }

// serveFeed sends a standard input while it is written.
func (t *transfer) serveFeed(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if !t.allowed(w, r, id, taskFeed) {
		return
	}
	from, err := strconv.ParseInt(r.URL.Query().Get("from"), 10, 64)
	if err != nil || from < 0 {
		http.Error(w, "from: must be a number of bytes", http.StatusBadRequest)
		return
	}
	if r.Method == http.MethodHead {
		return
	}
	t.mu.Lock()
	f := t.feeds[id]
	t.mu.Unlock()
	if f != nil {
		f.send(w, from)
		return
	}
	gone := func(w http.ResponseWriter, _ *http.Request, _ error) {
		http.Error(w, "nobody has this standard input any more", http.StatusGone)
	}
	address, err := os.ReadFile(t.feedNote(id)) //nolint:gosec // the id was signed
	if err != nil || string(address) == t.inner.Addr().String() {
		gone(w, r, err)
		return
	}
	(&httputil.ReverseProxy{
		Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(&url.URL{Scheme: "http", Host: string(address)}) },
		Transport:     &http.Transport{DisableKeepAlives: true},
		FlushInterval: -1, ErrorHandler: gone, ErrorLog: t.server.ErrorLog,
	}).ServeHTTP(w, r)
}

// feed returns the input of the task that brings a standard input. withdraw must be called, also after an error.
func (b *Backend) feed(id string, f *feed) (*files, error) {
	address, err := b.transfer.offer(id, f, time.Now().Add(b.inputLifetime()))
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(job.Feed{URL: address})
	return &files{inline: map[string][]byte{job.FeedFile: raw}}, err
}

// withdraw ends the feed of a job, if there is one.
func (b *Backend) withdraw(id string) {
	if err := b.transfer.withdraw(id); err != nil {
		b.log.Warn("remove an input", "execution", id, "error", err)
	}
}

// canFeed reports whether nodes can get a standard input while it is written. The runner has no TLS.
func (b *Backend) canFeed() bool { return strings.HasPrefix(b.transfer.base, "http://") }
