package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/executor"
)

// fileServer is a Nomad that has one file of an allocation.
type fileServer struct {
	content string
	missing bool

	mu sync.Mutex
	// breaks are what becomes of the next streams: how many bytes come, and Nomad's words behind them. Later streams are whole.
	breaks []broken
}

type broken struct {
	after int
	words string
}

// ServeHTTP answers as Nomad does: an error of a stream comes behind its frames, with status 200.
func (f *fileServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.missing && strings.Contains(r.URL.Path, "/stat/") {
		http.Error(w, "stat: no such file or directory", http.StatusInternalServerError)
		return
	}
	if strings.Contains(r.URL.Path, "/stat/") {
		_ = json.NewEncoder(w).Encode(api.AllocFileInfo{Size: int64(len(f.content))})
		return
	}
	if f.missing {
		_, _ = io.WriteString(w, "stat: no such file or directory")
		return
	}
	offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
	rest, words := f.content[offset:], ""
	f.mu.Lock()
	if len(f.breaks) > 0 {
		rest, words = rest[:min(f.breaks[0].after, len(rest))], f.breaks[0].words
		f.breaks = f.breaks[1:]
	}
	f.mu.Unlock()
	out := json.NewEncoder(w)
	for ; rest != ""; rest = rest[min(3, len(rest)):] {
		_ = out.Encode(api.StreamFrame{Data: []byte(rest[:min(3, len(rest))])})
		_, _ = io.WriteString(w, "{}") // a heartbeat
	}
	_, _ = io.WriteString(w, words)
}

// clusterOf returns a cluster whose only server is f. It tries again at once.
func clusterOf(t *testing.T, f http.Handler) *cluster {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	client, err := api.NewClient(&api.Config{Address: server.URL, TLSConfig: &api.TLSConfig{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &cluster{client: client, pause: func(ctx context.Context, _ int) error { return ctx.Err() }}
}

// breaks are the ways in which a stream ends before its file does.
func breaks() []broken {
	return []broken{{0, ""}, {4, "rpc error: session shutdown"}, {0, "No path to node"}, {1, ""}, {2, "rpc error: EOF"}}
}

func TestAFileIsReadWholeThoughItsStreamsBreak(t *testing.T) {
	t.Parallel()
	const content = "0123456789abcdef"
	over, end := context.WithCancelCause(t.Context())
	end(errOver)
	c := clusterOf(t, &fileServer{content: content, breaks: breaks()})
	raw, err := io.ReadAll(&tail{ctx: t.Context(), cluster: c, alloc: "a", path: "events", life: over, patience: time.Hour})
	if string(raw) != content || err != nil {
		t.Errorf("a tail: %q, %v", raw, err)
	}
	c = clusterOf(t, &fileServer{content: content, breaks: breaks()})
	raw, err = io.ReadAll(&part{ctx: t.Context(), cluster: c, alloc: "a", path: "artifacts", offset: 2, left: 11})
	if string(raw) != content[2:13] || err != nil {
		t.Errorf("a part: %q, %v", raw, err)
	}
	c = clusterOf(t, &fileServer{content: content, breaks: breaks()})
	if raw, err = c.end(t.Context(), "a", "events", 7); string(raw) != content[9:] || err != nil {
		t.Errorf("the end: %q, %v", raw, err)
	}
	if raw, err = c.end(t.Context(), "a", "events", 100); string(raw) != content || err != nil {
		t.Errorf("more than there is: %q, %v", raw, err)
	}
}

func TestTheWordsOfNomadAreNotContent(t *testing.T) {
	t.Parallel()
	over, end := context.WithCancelCause(t.Context())
	end(errOver)
	lost, end := context.WithCancelCause(t.Context())
	end(errLost)
	for _, c := range []struct {
		name   string
		server *fileServer
		life   context.Context
		text   string
		want   string // of the error
	}{
		{"a file that was never made", &fileServer{missing: true}, over, "", ""},
		{"no right to read", &fileServer{content: "abcd", breaks: []broken{{2, "Permission denied"}}}, over, "ab", "read events: Nomad answered 500: Permission denied"},
		{"a lost node", &fileServer{content: "abcd", breaks: []broken{{3, "No path to node"}}}, lost, "abc", ""},
	} {
		raw, err := io.ReadAll(&tail{ctx: t.Context(), cluster: clusterOf(t, c.server), alloc: "a", path: "events", life: c.life, patience: time.Hour})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if string(raw) != c.text || got != c.want {
			t.Errorf("%s: %q, %v", c.name, raw, err)
		}
	}
	in := &part{ctx: t.Context(), cluster: clusterOf(t, &fileServer{missing: true}), alloc: "a", path: "artifacts", left: 4}
	if n, err := in.Read(make([]byte, 4)); n != 0 || executor.CodeOf(err) != executor.Unavailable || errors.Is(err, io.EOF) || !strings.Contains(fmt.Sprint(err), "no such file") {
		t.Errorf("%d, %v", n, err)
	}
}

// TestAFileThatIsNotThereYetIsWaitedFor: the runner makes it when it starts.
func TestAFileThatIsNotThereYetIsWaitedFor(t *testing.T) {
	t.Parallel()
	life, end := context.WithCancelCause(t.Context())
	for _, words := range []string{"stat: no such file or directory", "Unknown allocation"} {
		tries := 0
		c := clusterOf(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if tries++; tries < 3 {
				http.Error(w, words, http.StatusInternalServerError)
				return
			}
			_ = json.NewEncoder(w).Encode(api.StreamFrame{Data: []byte("abc")})
		}))
		buf := make([]byte, 8)
		in := &tail{ctx: t.Context(), cluster: c, alloc: "a", path: "events", life: life, patience: time.Hour}
		if n, err := in.Read(buf); string(buf[:n]) != "abc" || err != nil || tries != 3 {
			t.Errorf("%s: %q after %d tries, %v", words, buf[:n], tries, err)
		}
		in.close()
	}
	away := &tail{ctx: t.Context(), cluster: clusterOf(t, &fileServer{missing: true}), alloc: "a", path: "events", life: life}
	if _, err := away.Read(make([]byte, 1)); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("without patience: %v", err)
	}
	caller, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the caller is gone")
	cancel(gone)
	end(errOver)
	left := &tail{ctx: caller, cluster: clusterOf(t, &fileServer{missing: true}), alloc: "a", path: "events", life: life, patience: time.Hour}
	if _, err := left.Read(make([]byte, 1)); !errors.Is(err, gone) {
		t.Errorf("after the end of its caller: %v", err)
	}
}
