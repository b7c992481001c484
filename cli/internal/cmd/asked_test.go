package cmd

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/cli/internal/app"
	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

// ownKey is the idempotency key that the SDK gives a submission.
var ownKey = regexp.MustCompile(`"idempotency_key":"go-[A-Z2-7]+",`)

// asked runs a command against a server that keeps the last request, without its key, and answers with body.
func asked(t *testing.T, body string, args ...string) (request string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		request = r.Method + " " + r.URL.RequestURI() + " " + ownKey.ReplaceAllString(string(raw), "")
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Connection", "close")
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	var errs strings.Builder
	if status := Execute(t.Context(), append(args, "--server", server.URL), IO{Out: io.Discard, Err: &errs}, app.Bundle{}); status != 0 {
		t.Errorf("%v: status %d: %s", args, status, errs.String())
	}
	return request
}

func TestWhatTheFlagsOfSessionsSayIsAsked(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "r.txt")
	if err := os.WriteFile(file, []byte("idna\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const session = `{"session_id":"ctx-1","status":"active"}`
	for _, c := range []struct{ args, body, want string }{
		{"new --name n --description d --language shell --python 3.12 --requirements " + file + " --env A=b --backend uv --idle-timeout 5 --max-life 6 --memory 7 --network --image i --timeout 8", session,
			`POST /api/v1/sessions {"name":"n","description":"d","language":"shell","python_version":"3.12","docker_image":"i","requirements_txt":"idna\n","env":{"A":"b"},` +
				`"config":{"timeout_seconds":8,"network_disabled":false,"memory_mb":7},"backend":"uv","idle_timeout_seconds":5,"max_life_seconds":6}`},
		{"new", session, "POST /api/v1/sessions {}"},
		{"open", session, "POST /api/v1/sessions {}"},
		{"restart ctx-1", session, `POST /api/v1/sessions/ctx-1/restart {"wipe":false}`},
		{"restart ctx-1 --wipe", session, `POST /api/v1/sessions/ctx-1/restart {"wipe":true}`},
		{"install ctx-1 six --requirements " + file, "{}", `POST /api/v1/sessions/ctx-1/requirements {"requirements_txt":"six\nidna\n"}`},
		{"files ctx-1 a/ -r", "{}", "GET /api/v1/sessions/ctx-1/files?path=a&recursive=true "},
		{"run ctx-1 -c x --timeout 9 --async", `{"execution_id":"exe_1"}`, `POST /api/v1/exec/async {"code":"x","config":{"timeout_seconds":9},"session_id":"ctx-1"}`},
	} {
		if got := asked(t, c.body, append([]string{"session"}, strings.Fields(c.args)...)...); got != c.want {
			t.Errorf("%s asks\n%s, want\n%s", c.args, got, c.want)
		}
	}
}

func TestCodeThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{maxCode: "", maxCode + 1: "the code must have at most 31.0 MiB"} {
		g := newGlobal(IO{In: io.LimitReader(blanks{}, n)}, app.Bundle{})
		g.register(newSession(g).PersistentFlags())
		_, err := (&sessionRunOptions{g: g, id: "ctx-1", file: "-"}).spec()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestALineOfAPipeThatIsTooLongIsRefused(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]error{maxLine: io.EOF, maxLine + 1: nil} {
		line, err := (&pipeReader{r: bufio.NewReader(io.LimitReader(blanks{}, n))}).line(t.Context(), "")
		if err == nil || want != nil && (!errors.Is(err, want) || int64(len(line)) != n) || want == nil && !strings.HasPrefix(err.Error(), "a line must have at most") {
			t.Errorf("%d bytes: a line of %d bytes, %v", n, len(line), err)
		}
	}
}

func TestAMessageOfABackendIsShown(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	infos := []executor.Info{{Name: "a", Healthy: true}, {Name: "b", Healthy: true, Message: "slow"}, {Name: "c", Message: "down"}}
	if err := printBackends(newGlobal(IO{Out: &out}, app.Bundle{}), infos); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a ( ) healthy\n", "b ( ) healthy: slow\n", "c ( ) unhealthy: down\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %q", want, out.String())
		}
	}
}

type blanks struct{}

func (blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestDoctorSaysWhatToDoAboutAServer(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{401: "set PYEXEC_TOKEN", 403: "set PYEXEC_TOKEN", 500: "check --server"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			w.WriteHeader(status)
		}))
		g := newGlobal(IO{}, app.Bundle{})
		g.server = server.URL
		findings := serverFindings(t.Context(), g)
		if len(findings) != 1 || findings[0].Level != backend.LevelError || !strings.HasPrefix(findings[0].Remedy, want) {
			t.Errorf("%d: %+v", status, findings)
		}
		server.Close()
	}
	got := told([]executor.Info{{Name: "a", Healthy: true, Warnings: []string{"w"}}, {Name: "b", Message: "down"}})
	if len(got) != 3 || got[0].Level != backend.LevelOK || got[1].Level != backend.LevelWarn || got[1].Message != "w" || got[2].Level != backend.LevelError || got[2].Message != "down" {
		t.Errorf("%+v", got)
	}
}

func TestDoctorLooksAtAnExternalPlugin(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(program, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("program"))
	digest := hex.EncodeToString(sum[:])
	for _, c := range []struct {
		name   string
		b      config.Backend
		level  backend.Level
		remedy string
	}{
		{"the program that is meant", config.Backend{Path: program, SHA256: digest}, backend.LevelOK, "python-executor plugin check " + program},
		{"another program", config.Backend{Path: program, SHA256: strings.Repeat("0", 64)}, backend.LevelError, "if you trust that file, set backends.x.sha256"},
		{"no program", config.Backend{Path: program + "s", SHA256: digest}, backend.LevelError, "set backends.x.path"},
	} {
		if f := externalFinding("backend x", c.b); f.Level != c.level || !strings.HasPrefix(f.Remedy, c.remedy) {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
}

func TestDoctorLooksAtTheDataFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	shared := t.TempDir()
	if err := errors.Join(os.Chmod(dir, 0o700), os.Chmod(shared, 0o755), os.WriteFile(filepath.Join(shared, "of others"), nil, 0o600)); err != nil { //nolint:gosec // folders
		t.Fatal(err)
	}
	for path, want := range map[string]backend.Level{
		dir: backend.LevelOK, shared: backend.LevelWarn, filepath.Join(dir, "to", "be", "made"): backend.LevelOK, file: backend.LevelError, filepath.Join(file, "below"): backend.LevelWarn,
	} {
		if f := dataDirFinding(path); f.Level != want || (f.Remedy == "") != (want == backend.LevelOK) {
			t.Errorf("%s: %+v", path, f)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("it made %v, %v", entries, err)
	}
}

func TestAQuietDoctorSaysWhatIsWrongOnly(t *testing.T) {
	t.Parallel()
	for quiet, want := range map[bool]string{false: "ok     a: fine\nerror  b: bad\n       → mend it\n", true: "error  b: bad\n       → mend it\n"} {
		var out strings.Builder
		g := newGlobal(IO{Out: &out}, app.Bundle{Version: "1"})
		g.quiet = quiet
		err := printFindings(g, []backend.Finding{{Level: backend.LevelOK, Topic: "a", Message: "fine"}, {Level: backend.LevelError, Topic: "b", Message: "bad", Remedy: "mend it"}})
		if _, text, _ := strings.Cut(out.String(), "\n"); err != nil || text != want {
			t.Errorf("quiet %t: %q, %v", quiet, text, err)
		}
	}
}

func TestFollowReadsTheLogTwiceUnlessItTails(t *testing.T) {
	t.Parallel()
	for tail, want := range map[bool]int{false: 2, true: 1} {
		readings := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			readings++
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Connection", "close")
			_, _ = io.WriteString(w, "id: 1\nevent: output\ndata: {\"stream\":\"stdout\",\"data\":\"x\"}\n\nid: 2\nevent: finished\ndata: {\"status\":\"succeeded\",\"exit_code\":0}\n\n")
		}))
		var out strings.Builder
		args := []string{"follow", "exe_1", "--server", server.URL}
		if tail {
			args = append(args, "--tail")
		}
		if status := Execute(context.Background(), args, IO{Out: &out, Err: io.Discard}, app.Bundle{}); status != 0 || out.String() != "x" || readings != want {
			t.Errorf("tail %t: status %d, %q after %d readings", tail, status, out.String(), readings)
		}
		server.Close()
	}
}
