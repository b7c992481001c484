package uvbackend

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// wheelhouse is a package index (PEP 503) on loopback, with wheels that the test makes.
type wheelhouse struct {
	server *httptest.Server
	// requests counts the requests.
	requests atomic.Int64
	// password, if not empty, is required of every request.
	password string

	mu sync.Mutex
	// first and last are the times of the first and the last request.
	first, last time.Time
	files       map[string]map[string][]byte // project → file name → content
	// links are further links on the page of a project.
	links map[string]string
	// hold, if not nil, delays every wheel until it is closed.
	hold chan struct{}
	// asked is closed when the first wheel is requested.
	asked     chan struct{}
	askedOnce sync.Once
}

func newWheelhouse(t testing.TB) *wheelhouse {
	t.Helper()
	w := &wheelhouse{files: map[string]map[string][]byte{}, asked: make(chan struct{})}
	w.server = httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(w.server.Close)
	return w
}

func (w *wheelhouse) url() string { return w.server.URL + "/simple" }

func (w *wheelhouse) serve(out http.ResponseWriter, in *http.Request) {
	w.requests.Add(1)
	if _, given, _ := in.BasicAuth(); given != w.password {
		out.Header().Set("WWW-Authenticate", "Basic")
		out.WriteHeader(http.StatusUnauthorized)
		return
	}
	parts := strings.Split(strings.Trim(in.URL.Path, "/"), "/")
	w.mu.Lock()
	w.last = time.Now()
	if w.first.IsZero() {
		w.first = w.last
	}
	hold := w.hold
	var project map[string][]byte
	if len(parts) >= 2 && parts[0] == "simple" {
		project = w.files[parts[1]]
		if w.links[parts[1]] != "" && project == nil {
			project = map[string][]byte{}
		}
	}
	w.mu.Unlock()
	switch {
	case project == nil:
		http.NotFound(out, in)
	case len(parts) == 2:
		out.Header().Set("Content-Type", "text/html")
		for name, content := range project {
			fmt.Fprintf(out, "<a href=\"/simple/%s/%s#sha256=%x\">%s</a>\n", parts[1], name, sha256.Sum256(content), name)
		}
		if link := w.links[parts[1]]; link != "" {
			fmt.Fprintf(out, "<a href=%q>%s</a>\n", link, path.Base(link))
		}
	default:
		w.askedOnce.Do(func() { close(w.asked) })
		if hold != nil {
			select {
			case <-hold:
			case <-in.Context().Done():
				return
			}
		}
		_, _ = out.Write(project[parts[2]])
	}
}

// add adds a wheel with the given files, by path, and the given requirements.
func (w *wheelhouse) add(name, version string, files map[string]string, requires ...string) {
	module := strings.ReplaceAll(name, "-", "_")
	w.addFile(name, fmt.Sprintf("%s-%s-py3-none-any.whl", module, version), plugintest.Wheel(module, version, "py3-none-any", files, requires...))
}

func (w *wheelhouse) addFile(name, file string, content []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.files[name] == nil {
		w.files[name] = map[string][]byte{}
	}
	w.files[name][file] = content
}

// probe adds pyexec-probe, which needs pyexec-base, in two versions.
func (w *wheelhouse) probe() {
	w.add("pyexec-base", "1.0", map[string]string{"pyexec_base.py": "__version__ = '1.0'\n"})
	for _, v := range []string{"1.2.3", "2.0"} {
		w.add("pyexec-probe", v, map[string]string{"pyexec_probe/__init__.py": "import pyexec_base\n__version__ = '" + v + "'\n"}, "pyexec-base>=1")
	}
}

// testUV puts a uv on PATH, once. If the machine has none, testUV fetches one to this user's cache for all test runs.
var testUV = sync.OnceValue(func() error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir := filepath.Join(cache, "python-executor", "test-uv")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	where := places{path: os.Getenv("PATH"), home: homeDir(), env: os.Getenv}
	pythons := func(context.Context) []string {
		var list []string
		for _, c := range where.candidates() {
			list = append(list, c.path)
		}
		return list
	}
	tool := newUVTool(dir, where, hostIndex("", where.home, os.Getenv), pythons, slog.New(slog.DiscardHandler))
	tool.enclose = unbounded(tool)
	program, err := tool.find(context.Background(), func(string) {})
	if err != nil {
		return err
	}
	return os.Setenv("PATH", filepath.Dir(program.path)+":"+os.Getenv("PATH"))
})

// unbounded returns an enclosure without bounds: a fetch of tool has the rights of the test.
func unbounded(tool *uvTool) func(context.Context, string) (enclosure, error) {
	run := func(ctx context.Context, env, _ []string, program string, args ...string) error {
		_, err := tool.run(ctx, env, program, args...)
		return err
	}
	return func(context.Context, string) (enclosure, error) {
		return enclosure{run: run, close: func() error { return nil }}, nil
	}
}

// needUV skips t if the machine has no uv and none can be fetched.
func needUV(t testing.TB) {
	t.Helper()
	err := testUV()
	needtest.Need(t, err == nil, "uv", fmt.Sprint(err))
}
