package requirements

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/python-executor/python-executor/core/executor/needtest"
)

// installer is a uv that fetches each line of the requirements with Python's own client, which obeys the variables of proxies. It asks twice
// where a proxy says that it has got no answer, and until there is one where it came too late. It names what the proxy said.
const installer = `#!/usr/bin/env python3
import os, ssl, sys, urllib.error, urllib.request
if sys.argv[1] == "--version": print("uv 9 (a test)")
elif sys.argv[1] == "venv":
    os.makedirs(sys.argv[-1] + "/bin")
    os.symlink(sys.executable, sys.argv[-1] + "/bin/python")
else:
    for line in open(sys.argv[sys.argv.index("-r") + 1]):
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=ssl._create_unverified_context()), urllib.request.ProxyHandler())
        got = code = None
        while not got:
            try:
                got = opener.open(line.strip())
            except urllib.error.HTTPError as e:
                if e.code not in (502, 503) or code == 502: raise
                code = e.code
                print("asks again after", code, file=sys.stderr)
        print("got", got.read().decode(), file=sys.stderr)
`

// drive runs the Driver. 127.0.0.2 stands for a public address in it.
func drive(t *testing.T, env map[string]string, sources []string, lines ...string) (outcome DriverOutcome, said string) {
	t.Helper()
	return driveAs(t, Driver, env, sources, lines...)
}

func driveAs(t *testing.T, driver string, env map[string]string, sources []string, lines ...string) (outcome DriverOutcome, said string) {
	t.Helper()
	base := t.TempDir()
	if err := os.Mkdir(filepath.Join(base, "tools"), 0o700); err != nil {
		t.Fatal(err)
	}
	// #! needs a file that no process holds open for writing, and another test may just have forked.
	if err := os.WriteFile(filepath.Join(base, "tools", "installer.py"), []byte(installer), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("/bin/sh", "-c", `printf '#!/bin/sh\nexec python3 %s/installer.py "$@"\n' "$1" > "$1/uv" && chmod 755 "$1/uv"`, "sh", filepath.Join(base, "tools")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if env == nil {
		env = map[string]string{}
	}
	job, err := json.Marshal(DriverJob{Base: base, Tools: filepath.Join(base, "tools"), Requirements: lines, Env: env, Sources: sources, Closed: []string{"127.0.0.1/32", "10.0.0.0/8", "::/16"}})
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "python3", "-I", "-c", driver)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(append(job, '\n')), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), &outcome); err != nil {
		t.Fatalf("%v: %s", err, stdout.String())
	}
	return outcome, stderr.String()
}

// refusals returns what the Driver's proxy refuses of the lines, in one process.
func refusals(t *testing.T, sources []string, lines ...string) (refused []string) {
	t.Helper()
	proxy, _, ok := strings.Cut(Driver, "\ndef end(")
	if !ok {
		t.Fatal("the Driver has another form")
	}
	job, err := json.Marshal(map[string]any{"base": t.TempDir(), "tools": "", "lines": lines})
	if err != nil {
		t.Fatal(err)
	}
	from, err := json.Marshal(sources)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "python3", "-I", "-c", proxy+fmt.Sprintf(`
child, sources, closed, env = None, %s, [ipaddress.ip_network(n) for n in ("127.0.0.1/32", "10.0.0.0/8", "::/16")], {}
names, lookup = {"inside.test": "127.0.0.1", "mixed.test": "127.0.0.2 127.0.0.1", "public.test": "127.0.0.2"}, socket.getaddrinfo
def known(host, port, *args, **more):
    if host == "nothing.invalid": raise socket.gaierror("no such host")
    return [found for address in names.get(host, host).split() for found in lookup(address, port, *args, **more)]
socket.getaddrinfo = known
proxies = fetches(env)
os.environ.update(env)
opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=ssl._create_unverified_context()), urllib.request.ProxyHandler())
for line in job["lines"]:
    try:
        opener.open(line).read()
        print("fetched", line, file=sys.stderr)
    except OSError:
        pass
print(json.dumps(Fetches.refused), file=answer, flush=True)
`, from))
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(append(job, '\n')), &stdout, &stderr
	if err := cmd.Run(); err != nil || strings.Contains(stderr.String(), "fetched") {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), &refused); err != nil {
		t.Fatalf("%v: %s", err, stdout.String())
	}
	return refused
}

// place is a server that counts what it is asked for.
func place(t *testing.T, address string, secure bool, h http.HandlerFunc) (endpoint string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	l, err := net.Listen("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			asked.Add(1)
		}
	}
	s.Listener.Close()
	s.Listener = l
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return l.Addr().String(), asked
}

func TestTheDriverFetchesFromSourcesAndPublicAddressesOnly(t *testing.T) {
	t.Parallel()
	_, err := exec.LookPath("python3")
	needtest.Need(t, err == nil, "python3", "the Driver is a Python program")
	hello := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello ", r.URL.RequestURI()) }
	inside, asked := place(t, "127.0.0.1:0", true, hello)
	index, _ := place(t, "127.0.0.1:0", false, hello)
	public, _ := place(t, "127.0.0.2:0", true, func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, "public")
	})
	outcome, said := drive(t, nil, []string{index}, "https://"+public+"/", "http://"+index+"/simple?q=1")
	if outcome.Failed != "" || outcome.Refused != "" || !strings.Contains(said, "got public\n") || !strings.Contains(said, "got hello /simple?q=1\n") {
		t.Errorf("%+v\n%s", outcome, said)
	}
	_, port, err := net.SplitHostPort(inside)
	if err != nil {
		t.Fatal(err)
	}
	outcome, said = drive(t, nil, []string{index}, "https://"+public+"/?to=https://"+inside+"/")
	if outcome.Failed != "install" || outcome.Refused != inside || strings.Contains(said, "got ") {
		t.Errorf("a redirect: %+v\n%s", outcome, said)
	}
	lines := []string{
		"https://" + inside + "/", "https://localhost:" + port + "/", "https://127.1:" + port + "/", "https://[::ffff:127.0.0.1]:" + port + "/", "https://intranet/", "https://10.0.0.1/",
		"https://inside.test:" + port + "/", "https://mixed.test:" + port + "/", "https://nothing.invalid/", "http://" + inside + "/", "http://" + public + "/", "https://" + public + "/?to=http://" + public + "/",
	}
	if refused := refusals(t, []string{index}, lines...); len(refused) != len(lines) {
		t.Errorf("refused %q of %q", refused, lines)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("%d connections to a server inside", n)
	}
}

// TestTheDriverUsesTheProxyOfItsVariables: for what is public, and over plain http for a source. NO_PROXY counts.
func TestTheDriverUsesTheProxyOfItsVariables(t *testing.T) {
	t.Parallel()
	_, err := exec.LookPath("python3")
	needtest.Need(t, err == nil, "python3", "the Driver is a Python program")
	index, direct := place(t, "127.0.0.1:0", false, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "direct") })
	theirs, _ := place(t, "127.0.0.1:0", false, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		fmt.Fprint(w, "by proxy ", r.RequestURI, " ", r.Header.Get("Proxy-Authorization"))
	})
	proxied := map[string]string{"HTTP_PROXY": "http://u:p@" + theirs, "https_proxy": "http://u:p@" + theirs}
	if _, said := drive(t, proxied, []string{index}, "http://"+index+"/x"); !strings.Contains(said, "got by proxy http://"+index+"/x Basic dTpw\n") || direct.Load() != 0 {
		t.Error(said)
	}
	if outcome, said := drive(t, proxied, nil, "https://127.0.0.2:1/"); outcome.Refused != "" || outcome.Failed != "install" || !strings.Contains(said, "502") {
		t.Errorf("a public address: %+v %s", outcome, said)
	}
	proxied["NO_PROXY"] = "127.0.0.1"
	if _, said := drive(t, proxied, []string{index}, "http://"+index+"/x"); !strings.Contains(said, "got direct\n") {
		t.Error(said)
	}
}

// TestTheDriverSaysWhyASourceWasOutOfReach: only if it has not answered since, because what it answered then is the reason.
func TestTheDriverSaysWhyASourceWasOutOfReach(t *testing.T) {
	t.Parallel()
	_, err := exec.LookPath("python3")
	needtest.Need(t, err == nil, "python3", "the Driver is a Python program")
	const why = "Remote end closed connection"
	for lost, want := range map[int64]bool{1: false, 2: true} {
		var requests atomic.Int64
		index, _ := place(t, "127.0.0.1:0", false, func(w http.ResponseWriter, r *http.Request) {
			if requests.Add(1) <= lost {
				panic(http.ErrAbortHandler)
			}
			http.NotFound(w, r)
		})
		outcome, said := drive(t, nil, []string{index}, "http://"+index+"/none")
		if outcome.Failed != "install" || strings.Contains(said, index+": "+why) != want || requests.Load() != 2 {
			t.Errorf("%d lost answers: %d requests, %+v\n%s", lost, requests.Load(), outcome, said)
		}
	}
}

// TestWhatASourceDoesNotAnswerInTimeIsAskedForAgain by pip, too, which asks again after 503 in all its versions.
func TestWhatASourceDoesNotAnswerInTimeIsAskedForAgain(t *testing.T) {
	t.Parallel()
	_, err := exec.LookPath("python3")
	needtest.Need(t, err == nil, "python3", "the Driver is a Python program")
	var requests atomic.Int64
	index, _ := place(t, "127.0.0.1:0", false, func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			<-r.Context().Done() // no answer before the Driver gives up
			return
		}
		fmt.Fprint(w, "late")
	})
	impatient := strings.Replace(Driver, "ANSWER_SECONDS = 60", "ANSWER_SECONDS = 0.1", 1)
	if impatient == Driver {
		t.Fatal("the Driver has another form")
	}
	_, said := driveAs(t, impatient, nil, []string{index}, "http://"+index+"/x")
	if !strings.Contains(said, "asks again after 503\n") || !strings.Contains(said, "got late\n") {
		t.Error(said)
	}
}
