package tests

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// hostileIndex is a package source that the configuration names. Its pages lead to addresses of this host.
type hostileIndex struct {
	url string
	// targets are addresses of this host, on loopback and not, that nobody may connect to.
	targets []string
	// asked gets a value when the package late is asked for, which comes when answer is closed.
	asked, answer chan struct{}
}

func newHostileIndex(t *testing.T) *hostileIndex {
	x := &hostileIndex{targets: []string{untouched(t, "127.0.0.1"), untouched(t, ownAddress(t))}, asked: make(chan struct{}, 1), answer: make(chan struct{})}
	source := strings.NewReplacer("\t", "    ").Replace(fmt.Sprintf(`
import socket, sys
def build_wheel(*args, **more):
	for address in %q.split():
		host, _, port = address.rpartition(":")
		try:
			socket.create_connection((host, int(port)), timeout=20)
		except OSError as e:
			print("refused", address, file=sys.stderr)
	sys.exit("tried all")
`, strings.Join(x.targets, " ")))
	var built bytes.Buffer
	z := gzip.NewWriter(&built)
	_, _ = z.Write(tarOf(t, file{"tries-1.0/pyproject.toml", "[build-system]\nrequires = []\nbuild-backend = \"tries\"\nbackend-path = [\".\"]\n[project]\nname = \"tries\"\nversion = \"1.0\"\n"},
		file{"tries-1.0/tries.py", source}, file{"tries-1.0/PKG-INFO", "Metadata-Version: 2.1\nName: tries\nVersion: 1.0\n"})) // a buffer takes all
	_ = z.Close()
	late := plugintest.Wheel("late", "1.0", "py3-none-any", map[string]string{"late.py": ""})
	links := map[string]string{
		"secure": "https://" + x.targets[0] + "/secure-1.0-py3-none-any.whl", "plain": "http://" + x.targets[1] + "/plain-1.0-py3-none-any.whl",
		"moved": "/moved-1.0-py3-none-any.whl", "late": "/late-1.0-py3-none-any.whl", "tries": "/tries-1.0.tar.gz",
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := filepath.Base(r.URL.Path)
		switch {
		case name == "page":
			http.Redirect(w, r, "http://"+x.targets[0]+r.URL.Path, http.StatusFound)
		case strings.HasPrefix(name, "moved-"):
			http.Redirect(w, r, "http://"+x.targets[1]+r.URL.Path, http.StatusFound)
		case strings.HasPrefix(name, "tries-"):
			_, _ = w.Write(built.Bytes()) // the client may be gone
		case strings.HasPrefix(name, "late-"):
			_, _ = w.Write(late) // likewise
		case links[name] == "":
			http.NotFound(w, r)
		default:
			if name == "late" {
				x.asked <- struct{}{}
				<-x.answer
			}
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, "<a href=%q>%s</a>", links[name], filepath.Base(links[name]))
		}
	}))
	t.Cleanup(s.Close)
	x.url = s.URL
	return x
}

// untouched returns an endpoint at an address of this host, which closes each connection. The test fails if somebody connects to it.
func untouched(t *testing.T, address string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	touched := make(chan int)
	go func() {
		n := 0
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			n++
			_ = c.Close() // it counts already
		}
		touched <- n
	}()
	t.Cleanup(func() {
		_ = l.Close() // ends the loop
		if n := <-touched; n > 0 {
			t.Errorf("somebody connected to %s %d times", l.Addr(), n)
		}
	})
	return l.Addr().String()
}

// attackFetches has the server fetch from this host for a program.
func attackFetches(t *testing.T, v *victim) {
	lines := []string{"secure", "plain", "moved", "page"}
	for _, target := range v.index.targets {
		for _, form := range []string{
			"a @ https://%s/a-1.0-py3-none-any.whl", "a @ http://%s/a-1.0-py3-none-any.whl", "a @ git+https://%s/a.git", "a @ git+http://%s/a.git",
			"a @ git+ssh://git@%s/a.git", "--index-url https://%s/simple\na", "--extra-index-url https://%s/simple\na", "--find-links https://%s/\na", "-r https://%s/more.txt",
		} {
			lines = append(lines, fmt.Sprintf(form, target))
		}
	}
	port := portOf(t, v.index.targets[0])
	for _, host := range []string{"localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "0.0.0.0", "user:secret@127.0.0.1", "169.254.169.254", "intranet"} {
		lines = append(lines, fmt.Sprintf("a @ https://%s:%d/a-1.0-py3-none-any.whl", host, port))
	}
	// What a program brings along: its variables, and the settings of uv in its script.
	header := "# /// script\n# dependencies = ['a @ https://" + v.index.targets[0] + "/a-1.0-py3-none-any.whl']\n# ///\nprint('ran')"
	if said := encoded(v.exec(map[string]any{"code": header})); strings.Contains(said, `"ran`) || !strings.Contains(said, `"invalid"`) {
		t.Errorf("a script's dependency: %s", said)
	}
	settings := "# /// script\n# dependencies = ['absent']\n# [tool.uv]\n# index-url = 'http://" + v.index.targets[0] + "/simple'\n# ///\nprint('ran')"
	target := "http://" + v.index.targets[0]
	v.exec(map[string]any{"code": settings, "env": map[string]string{"UV_INDEX_URL": target, "UV_DEFAULT_INDEX": target, "PIP_INDEX_URL": target, "HTTPS_PROXY": target, "HTTP_PROXY": target, "ALL_PROXY": target}})
	for _, line := range lines {
		r := v.exec(map[string]any{"code": "print('ran')", "requirements_txt": line})
		if said := encoded(r); strings.Contains(said, `"ran`) || !strings.Contains(said, "requirements_txt") || !strings.Contains(said, `"invalid"`) {
			t.Errorf("%q: %s", line, said)
		}
	}
	if v.container { // without namespaces code that is built has the network of the container: docs/network.md
		return
	}
	r := encoded(v.exec(map[string]any{"code": "print('ran')", "requirements_txt": "tries"}))
	for _, target := range v.index.targets {
		if !strings.Contains(r, "tried all") || !strings.Contains(r, "refused "+target) {
			t.Errorf("a build: %s", r)
		}
	}
}

// attackSights looks at what a program can see of the host, the server and others.
func attackSights(t *testing.T, v *victim) {
	r := v.exec(map[string]any{"env": map[string]string{"BASE": v.dir}, "code": `
import json, os, socket
def can(what, *args):
    try:
        return what(*args) or True
    except OSError:
        return False
seen = {
    "netlink": [p for p in range(23) if can(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, p)],
    "groups": open("/proc/self/cgroup").read(),
    "oom": [int(open("/proc/self/oom_score_adj").read())],
    "listed": [d for d in ("data", "home/cache/environments", "home/cache/uv-cache", "home/cache/work", "closed") if can(os.listdir, os.environ["BASE"] + "/" + d)],
}
print(json.dumps(seen))
`})
	var seen struct {
		Netlink []int
		Groups  string
		Oom     []int
		Listed  []string
	}
	out, _ := r["stdout"].(string)
	if err := json.Unmarshal([]byte(out), &seen); err != nil {
		t.Fatalf("%v: %v", err, r)
	}
	if len(seen.Netlink) > 1 || len(seen.Netlink) == 1 && seen.Netlink[0] != 0 {
		t.Errorf("netlink protocols other than ROUTE: %v", seen.Netlink)
	}
	if strings.Contains(seen.Groups, "python-executor") || strings.Contains(seen.Groups, "slice") {
		t.Errorf("control groups of the host: %s", seen.Groups)
	}
	if seen.Oom[0] < 0 {
		t.Errorf("a program is protected from the kernel's choice: %d", seen.Oom[0])
	}
	if len(seen.Listed) > 0 {
		t.Errorf("a program lists folders of the server: %q", seen.Listed)
	}
	for _, dir := range []string{"data", "home/cache/environments"} {
		info, err := os.Stat(filepath.Join(v.dir, dir))
		if err != nil {
			t.Fatal(err)
		}
		want := os.FileMode(0o700)
		if v.container && dir != "data" {
			want = 0o711 // programs have other users and no box: docs/security.md
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s: %v, want %v", dir, info.Mode(), want)
		}
	}
}

func encoded(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}
