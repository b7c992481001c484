package dockerbackend

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/docker/docker/api/types/network"

	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// wheelhouse is a package index (PEP 503) of wheels that the test makes. It listens on all addresses, so that containers reach
// it at the gateway of their bridge.
type wheelhouse struct {
	server *httptest.Server
	// requests counts what was asked for.
	requests atomic.Int64

	mu    sync.Mutex
	files map[string]map[string][]byte // project → file name → content
	// hold, if set, delays each wheel until it is closed.
	hold chan struct{}
	// password, if set, is required in requests.
	password string
	// asked is closed when the first wheel is requested.
	asked     chan struct{}
	askedOnce sync.Once
}

func newWheelhouse(t testing.TB) *wheelhouse {
	t.Helper()
	w := &wheelhouse{files: map[string]map[string][]byte{}, asked: make(chan struct{})}
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	w.server = httptest.NewUnstartedServer(http.HandlerFunc(w.serve))
	w.server.Listener.Close()
	w.server.Listener = listener
	w.server.Start()
	t.Cleanup(w.server.Close)
	return w
}

// url returns the address of the index for containers on the daemon's bridge.
func (w *wheelhouse) url(t testing.TB) string {
	t.Helper()
	_, port, err := net.SplitHostPort(w.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + net.JoinHostPort(gateway(t), port) + "/simple"
}

// gateway returns this machine's address on the bridge of the tests' daemon.
func gateway(t testing.TB) string {
	t.Helper()
	d, err := dial(t.Context(), dockertest.Host(t))
	if err != nil {
		t.Fatal(err)
	}
	defer d.close() //nolint:errcheck // read only
	n, err := d.api.NetworkInspect(t.Context(), "bridge", network.InspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range n.IPAM.Config {
		if p, err := netip.ParsePrefix(c.Subnet); err == nil && p.Addr().Is4() {
			return p.Masked().Addr().Next().String()
		}
	}
	t.Fatalf("the bridge has no IPv4 network: %v", n.IPAM.Config)
	return ""
}

// folder writes the wheels into a folder.
func (w *wheelhouse) folder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, project := range w.files {
		for name, content := range project {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func (w *wheelhouse) serve(out http.ResponseWriter, in *http.Request) {
	w.requests.Add(1)
	parts := strings.Split(strings.Trim(in.URL.Path, "/"), "/")
	w.mu.Lock()
	hold := w.hold
	var project map[string][]byte
	if len(parts) >= 2 && parts[0] == "simple" {
		project = w.files[parts[1]]
	}
	w.mu.Unlock()
	_, password, _ := in.BasicAuth()
	switch {
	case password != w.password:
		out.Header().Set("WWW-Authenticate", "Basic")
		out.WriteHeader(http.StatusUnauthorized)
	case project == nil:
		http.NotFound(out, in)
	case len(parts) == 2:
		out.Header().Set("Content-Type", "text/html")
		for name, content := range project {
			fmt.Fprintf(out, "<a href=\"/simple/%s/%s#sha256=%x\">%s</a>\n", parts[1], name, sha256.Sum256(content), name)
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

// add adds a wheel with these files by path, and with its own requirements.
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
