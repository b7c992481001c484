package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/core/runner/job"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// reading returns a Source of r.
func reading(r io.Reader) *runner.SourceReader {
	return runner.NewSourceReader(&executor.Source{Open: func() (io.ReadCloser, error) {
		if c, ok := r.(io.ReadCloser); ok {
			return c, nil
		}
		return io.NopCloser(r), nil
	}})
}

// aFeed returns the feed of a pipe.
func aFeed(t *testing.T) (*feed, *io.PipeWriter) {
	t.Helper()
	r, w := io.Pipe()
	whole, f, err := openFeed(reading(r), maxInline, 0)
	if err != nil || f == nil {
		t.Fatalf("%q %v", whole, err)
	}
	return f, w
}

func TestASmallStandardInputThatIsThereNeedsNoFeed(t *testing.T) {
	t.Parallel()
	whole, f, err := openFeed(reading(strings.NewReader("all")), 3, time.Hour)
	if err != nil || f != nil || string(whole) != "all" {
		t.Errorf("%q %v %v", whole, f, err)
	}
	if _, f, err = openFeed(reading(strings.NewReader("more")), 3, time.Hour); err != nil || f == nil || string(f.head) != "more" {
		t.Errorf("of 4 bytes for 3: %+v %v", f, err)
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
	broken := executor.Errorf(executor.Exhausted, "too long")
	if whole, f, err := openFeed(reading(io.MultiReader(strings.NewReader("a"), failing{broken})), 3, time.Hour); executor.CodeOf(err) != executor.Exhausted || f != nil {
		t.Errorf("a source that fails: %q %v %v", whole, f, err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// answer is the answer to a request for a feed.
type feedAnswer struct {
	*http.Response
	frames *protocol.Reader
}

func ask(t *testing.T, address string, from int) feedAnswer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("%s?from=%d", address, from), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return feedAnswer{answer, protocol.NewReader(answer.Body)}
}

// next returns the content of the next frame, "end" for the last, and "cut" if the answer breaks off.
func (a feedAnswer) next(t *testing.T) string {
	t.Helper()
	kind, n, err := a.frames.Header()
	if err != nil {
		return "cut"
	}
	if kind == protocol.FrameStdinEnd {
		return "end"
	}
	data, err := a.frames.Payload(n)
	if err != nil {
		return "cut"
	}
	return string(data)
}

func (a feedAnswer) says(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := a.next(t); got != w {
			t.Fatalf("the next frame is %.60q, want %.60q", got, w)
		}
	}
}

func write1(t *testing.T, w io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
}

// offered offers a feed, and returns its address and the cause of its break.
func offered(t *testing.T, x *transfer, id string, f *feed) (string, context.Context) {
	t.Helper()
	ctx, broken := context.WithCancelCause(t.Context())
	f.whenBroken(broken)
	address, err := x.offer(id, f, future)
	if err != nil {
		t.Fatal(err)
	}
	return address, ctx
}

func TestAFeedIsSentWhileItIsWritten(t *testing.T) {
	t.Parallel()
	x := serve(t, t.TempDir())
	f, w := aFeed(t)
	address, broken := offered(t, x, "exe_1", f)
	a := ask(t, address, 0)
	for _, line := range []string{"one\n", "two\n"} {
		write1(t, w, line)
		a.says(t, line)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	a.says(t, "end", "cut")
	if err := x.withdraw("exe_1"); err != nil || broken.Err() != nil {
		t.Error(err, context.Cause(broken))
	}
	if a := ask(t, address, 8); a.StatusCode != http.StatusGone {
		t.Errorf("after the end: %s", a.Status)
	}
}

func TestARequestForAFeedTakesThePlaceOfTheFormer(t *testing.T) {
	t.Parallel()
	x := serve(t, t.TempDir())
	f, w := aFeed(t)
	address, broken := offered(t, x, "exe_1", f)
	first := ask(t, address, 0)
	write1(t, w, "one")
	first.says(t, "one")
	second := ask(t, address, 3)
	first.says(t, "cut")
	write1(t, w, "two")
	second.says(t, "two")
	if broken.Err() != nil {
		t.Fatal(context.Cause(broken))
	}
	if third := ask(t, address, 4); third.StatusCode != http.StatusConflict || !errors.Is(context.Cause(broken), errInputCut) {
		t.Errorf("a lost part: %s, %v", third.Status, context.Cause(broken))
	}
	if err := x.withdraw("exe_1"); err != nil {
		t.Error(err)
	}
}

func TestAFeedThatBlocksGivesWayToTheNextRequest(t *testing.T) {
	t.Parallel()
	x := serve(t, t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		_, f, err := openFeed(reading(endless{}), maxInline, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		address, broken := offered(t, x, "exe_1", f)
		pipes := make(pipes)
		server := &http.Server{Handler: x.server.Handler, ReadHeaderTimeout: time.Hour}
		go func() { _ = server.Serve(pipes) }() // Close ends it
		defer server.Close()
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: pipes.dial}}
		get := func() *http.Response {
			t.Helper()
			answer, err := client.Get(address + "?from=0")
			if err != nil {
				t.Fatal(err)
			}
			return answer
		}
		unread := get()
		synctest.Wait() // for the server, which waits for a reader
		next := get()
		if next.StatusCode != http.StatusConflict || !errors.Is(context.Cause(broken), errInputCut) {
			t.Errorf("%s, %v", next.Status, context.Cause(broken))
		}
		if err := errors.Join(x.withdraw("exe_1"), unread.Body.Close(), next.Body.Close()); err != nil {
			t.Error(err)
		}
	})
}

// pipes is a listener in memory. A pipe has no buffer: what one side writes waits for the other one.
type pipes chan net.Conn

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	p <- theirs
	return ours, nil
}

// Accept implements net.Listener.
func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

// Close implements net.Listener.
func (p pipes) Close() error { close(p); return nil }

// Addr implements net.Listener.
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestAFeedGoesOnWhereAFormerProcessStopped(t *testing.T) {
	t.Parallel()
	x := serve(t, t.TempDir())
	f, w := aFeed(t)
	address, broken := offered(t, x, "exe_1", f)
	a := ask(t, address, 5)
	write1(t, w, "one")
	write1(t, w, "two")
	a.says(t, "o")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	a.says(t, "end")
	if err := x.withdraw("exe_1"); err != nil || broken.Err() != nil {
		t.Error(err, context.Cause(broken))
	}
}

func TestAFeedWhoseSourceFailsBreaksOff(t *testing.T) {
	t.Parallel()
	x := serve(t, t.TempDir())
	f, w := aFeed(t)
	address, broken := offered(t, x, "exe_1", f)
	a := ask(t, address, 0)
	_ = w.CloseWithError(executor.Errorf(executor.Exhausted, "too long")) // no error
	a.says(t, "cut")
	<-broken.Done()
	if executor.CodeOf(context.Cause(broken)) != executor.Exhausted {
		t.Error(context.Cause(broken))
	}
	if err := x.withdraw("exe_1"); err != nil {
		t.Error(err)
	}
}

func TestAFeedIsReachedByAnotherProcessOfItsFolder(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	x, other := serve(t, folder), serve(t, folder)
	f, w := aFeed(t)
	address, _ := offered(t, x, "exe_1", f)
	address = strings.Replace(address, x.base, "http://"+other.inner.Addr().String(), 1)
	a := ask(t, address, 0)
	write1(t, w, "one")
	a.says(t, "one")
	if err := x.close(); err != nil {
		t.Fatal(err)
	}
	a.says(t, "cut")
	if a := ask(t, address, 3); a.StatusCode != http.StatusGone {
		t.Errorf("after the end of its process: %s", a.Status)
	}
	if err := x.withdraw("exe_1"); err != nil {
		t.Error(err)
	}
	if a := ask(t, address, 3); a.StatusCode != http.StatusGone {
		t.Errorf("after its end: %s", a.Status)
	}
}

func TestAFeedMustBeAskedForProperly(t *testing.T) {
	t.Parallel()
	x := serve(t, t.TempDir())
	large := strings.Repeat("x", maxInline+1)
	_, f, err := openFeed(reading(strings.NewReader(large)), maxInline, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	address, _ := offered(t, x, "exe_1", f)
	for path, want := range map[string]int{
		address + "?from=0": http.StatusOK, // without its content
		address + "?from=x": http.StatusBadRequest, address + "?from=-1": http.StatusBadRequest, address: http.StatusBadRequest,
		x.base + "/feed/exe_1/" + x.token("exe_2", taskFeed, future) + "?from=0":    http.StatusNotFound,
		x.base + "/feed/exe_1/" + x.token("exe_1", taskProgram, future) + "?from=0": http.StatusNotFound,
		x.base + "/feed/exe_1/" + x.token("exe_1", taskFeed, past) + "?from=0":      http.StatusGone,
	} {
		if code, _ := get(t, http.MethodHead, path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	ask(t, address, 0).says(t, large, "end")
	if err := x.withdraw("exe_1"); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(x.folder, inputsFolder)); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// afar returns a backend whose Nomad is not there.
func afar(t *testing.T, change func(*Config)) *Backend {
	t.Helper()
	client, err := api.NewClient(&api.Config{Address: "http://127.0.0.1:1", TLSConfig: &api.TLSConfig{}})
	if err != nil {
		t.Fatal(err)
	}
	c := Default()
	if change != nil {
		change(&c)
	}
	b, err := newBackend(Options{Client: client, Config: c, Configure: plugin.Configure{Name: "nomad", DataDir: t.TempDir()}}, program{content: []byte("runner")})
	if err != nil {
		t.Fatal(err)
	}
	b.feedPatience = time.Hour // the inputs of these tests end at once
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestWhereAStandardInputIsPutDependsOnItsSizeAndOnTheAddress(t *testing.T) {
	t.Parallel()
	source := func(text string) *executor.Source {
		return &executor.Source{Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
	}
	large := strings.Repeat("x", maxInline)
	for name, c := range map[string]struct {
		workspace, stdin, address  string
		inline, url, fed, warnings bool
	}{
		"small":                     {"", "in", "http://h", true, false, false, false},
		"small with many files":     {large, "in", "http://h", true, true, false, false},
		"large":                     {"", large, "http://h", false, false, true, false},
		"empty":                     {"", "", "http://h", false, false, false, false},
		"small and no TLS to fetch": {"", "in", "https://h", true, false, false, true},
		"large and no TLS to fetch": {"", large, "https://h", false, true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := afar(t, func(config *Config) { config.Transfer.URL = c.address })
			j := executor.Job{ID: "exe_1", Spec: executor.Spec{Code: "1"}, Stdin: source(c.stdin)}
			if c.workspace != "" {
				j.Workspace = source(c.workspace)
			}
			o, f, err := b.order(t.Context(), j, "image", preparation{})
			if err != nil {
				t.Fatal(err)
			}
			defer b.withdraw(j.ID)
			if got := string(o.program.inline[job.StdinFile]); c.inline != (got == c.stdin && got != "") || c.url != (o.program.url != "") || c.fed != (f != nil && o.feed != nil) || c.fed != (f != nil) {
				t.Errorf("in the job %q, at %q, fed %v %v", got, o.program.url, f != nil, o.feed)
			}
			if content, has := o.program.inline[job.StdinFile]; has && len(content) == 0 { // a template cannot be empty
				t.Error("the job has an empty file")
			}
			info, err := b.Info(t.Context())
			if err != nil || slices.Contains(info.Warnings, inputWarning) != c.warnings {
				t.Errorf("%v %q", err, info.Warnings)
			}
		})
	}
}
