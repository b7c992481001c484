//go:build linux

package batch

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/job"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// dial connects to the socket of a job, once it is there.
func dial(t *testing.T, path string) (c net.Conn) {
	t.Helper()
	awaittest.UntilNil(t, "a listener at "+path, func() (err error) {
		c, err = net.Dial("unix", path)
		return err
	})
	return c
}

// passable makes a folder that programs may pass through, as through the one with what was prepared.
func (p *place) passable(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(p.root, "open")
	must(t, os.Mkdir(folder, 0o700))
	must(t, os.Chmod(folder, 0o711))
	return folder
}

func TestAStandardInputThatIsFedIsLive(t *testing.T) {
	p := newPlace(t)
	folder := p.passable(t)
	socket := filepath.Join(folder, job.FeedSocket)
	start := p.python("import socket, sys\ns = socket.socket(socket.AF_UNIX)\ntry: s.connect(sys.argv[1])\nexcept OSError as e: print(e.errno, flush=True)\nfor line in sys.stdin: print(line, end='', flush=True)\nprint('end')\n")
	start.Start.Args = []string{socket}
	p.writeJSON(job.StartFile, start)
	r := p.launch("job", "--feed", folder)
	said := ""
	says := func(text string) {
		t.Helper()
		said += text
		awaittest.Until(t, fmt.Sprintf("the output %q", said), func() bool { return p.read().out[0] == said })
	}
	says("13\n") // EACCES
	in := dial(t, socket)
	for n := range 3 {
		line := fmt.Sprintf("line %d\n", n)
		_, err := io.WriteString(in, line)
		must(t, err)
		says(line)
	}
	if _, err := net.Dial("unix", socket); err == nil {
		t.Error("a second one can connect")
	}
	must(t, in.Close())
	if o := p.outcome(r); o.brief() != "succeeded exit 0" || o.out[0] != said+"end\n" {
		t.Errorf("%s %q", o.brief(), o.out[0])
	}
}

func TestAJobThatReadsNoneOfWhatItIsFedEnds(t *testing.T) {
	for name, dials := range map[string]bool{"nobody feeds it": false, "it is fed without end": true} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			fed := filepath.Join(p.passable(t), "fed")
			start := p.python("import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\nprint('done')")
			start.Start.Args = []string{fed}
			p.writeJSON(job.StartFile, start)
			r := p.launch("job", "--feed", p.alloc)
			if dials {
				in := dial(t, filepath.Join(p.alloc, job.FeedSocket))
				defer in.Close()
				go func() {
					for block := make([]byte, 1<<16); ; {
						if _, err := in.Write(block); err != nil {
							return
						}
					}
				}()
			}
			must(t, os.WriteFile(fed, nil, 0o600))
			if o := p.outcome(r); o.brief() != "succeeded exit 0" || o.out[0] != "done\n" {
				t.Errorf("%s %q", o.brief(), o.out[0])
			}
		})
	}
}

// frame returns a frame of a standard input; the last one without text.
func frame(text string) string {
	kind := protocol.FrameStdin
	if text == "" {
		kind = protocol.FrameStdinEnd
	}
	return string(protocol.AppendFrame(nil, kind, []byte(text)))
}

// fed passes on what a server answers, one answer after another, and returns what arrives. An answer without an end breaks off.
func fed(t *testing.T, answers ...string) (got string, from []string) {
	t.Helper()
	left := answers
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from = append(from, r.FormValue("from"))
		if len(left) == 0 {
			http.Error(w, "nobody has it", http.StatusGone)
			return
		}
		body := left[0]
		left = left[1:]
		if status, ok := strings.CutPrefix(body, "status "); ok {
			var code int
			_, err := fmt.Sscan(status, &code)
			if err != nil {
				t.Error(err)
			}
			w.WriteHeader(code)
			return
		}
		_, _ = io.WriteString(w, body) // an HTTP/1.0 client sees the end of the connection
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	must(t, err)
	defer l.Close()
	done := make(chan error, 1)
	go func() { done <- feed(awaittest.Context(t), server.URL+"/feed/x", path) }()
	in, err := l.Accept()
	must(t, err)
	raw, err := io.ReadAll(in)
	must(t, err)
	must(t, <-done)
	return string(raw), from
}

func TestAFeedIsWholeAcrossBrokenConnections(t *testing.T) {
	for name, c := range map[string]struct {
		answers   []string
		got, from string
	}{
		"one answer":               {[]string{frame("abc") + frame("de") + frame("")}, "abcde", "0"},
		"empty":                    {[]string{frame("")}, "", "0"},
		"it breaks off":            {[]string{frame("abc"), frame("de") + frame("")}, "abcde", "0 3"},
		"it breaks in a frame":     {[]string{frame("abc") + frame("defgh")[:7], frame("defgh") + frame("")}, "abcdefgh", "0 3"},
		"the server is busy":       {[]string{"status 503", frame("abc") + frame("")}, "abc", "0 0"},
		"nobody has the rest":      {[]string{frame("abc")}, "abc", "0 3"},
		"another frame is refused": {[]string{frame("a") + string(protocol.AppendFrame(nil, protocol.FramePing, nil)), frame("b") + frame("")}, "ab", "0 1"},
	} {
		t.Run(name, func(t *testing.T) {
			got, from := fed(t, c.answers...)
			if got != c.got || strings.Join(from, " ") != c.from {
				t.Errorf("got %q, asked from %q", got, from)
			}
		})
	}
}

func TestAFeedThatNobodyReadsEndsItsConnection(t *testing.T) {
	left := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(left)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, frame(strings.Repeat("x", 1<<16))); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	must(t, err)
	defer l.Close()
	done := make(chan error, 1)
	go func() { done <- feed(t.Context(), server.URL+"/feed/x", path) }()
	in, err := l.Accept()
	must(t, err)
	_, err = bufio.NewReader(in).ReadByte()
	must(t, err)
	must(t, in.Close())
	must(t, <-done)
	<-left
}

func TestAFeedNeedsAnHTTPAddress(t *testing.T) {
	for _, address := range []string{"https://h/x", "ftp://h/x", ":", ""} {
		if err := feed(t.Context(), address, "/nowhere"); err == nil {
			t.Errorf("%q is taken", address)
		}
	}
}
