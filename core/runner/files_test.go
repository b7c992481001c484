//go:build linux

package runner

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

func TestTheEntrypointIsFound(t *testing.T) {
	r := startRunner(t, testConfig(t))
	for _, c := range []struct {
		name  string
		a     tarball
		entry string
		want  string
	}{
		{"main.py before all", tarball{file("a.py", ""), file("__main__.py", ""), file("main.py", "")}, "", "main.py"},
		{"__main__.py before others", tarball{file("a.py", ""), file("__main__.py", "")}, "", "__main__.py"},
		{"the first in archive order", tarball{file("z/z.py", ""), file("a.py", "")}, "", "z/z.py"},
		{"a main.py below is none", tarball{file("a.py", ""), file("d/main.py", "")}, "", "a.py"},
		{"a folder main.py is none", tarball{dir("main.py/"), file("a.py", "")}, "", "a.py"},
		{"the one that is named", tarball{file("main.py", ""), file("d/x.py", "")}, "d/x.py", "d/x.py"},
		{"named in a roundabout way", tarball{file("d/x.py", "")}, "./d/../d/x.py", "d/x.py"},
		{"a link to a file inside", tarball{file("real", ""), link("main.py", "real")}, "", "main.py"},
		{"a name that looks like an option", tarball{file("-c.py", "")}, "", "./-c.py"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range c.a {
				if c.a[i].h.Typeflag == '0' {
					c.a[i].data = "import sys; print(sys.argv)"
					c.a[i].h.Size = int64(len(c.a[i].data))
				}
			}
			start := python("")
			start.Entrypoint = c.entry
			start.Args = []string{"x", "--y"}
			res, rec := r.run(t, start, RunInput{Workspace: c.a.reader(t)})
			if want := fmt.Sprintf("['%s', 'x', '--y']\n", c.want); rec.stdout() != want {
				t.Errorf("got %s %s, want %s (%s %+v)", rec.stdout(), rec.stderr(), want, describe(res), res.Failure)
			}
		})
	}
}

func TestABadWorkspaceIsTheUsersFailureAndTheRunnerLivesOn(t *testing.T) {
	r := startRunner(t, testConfig(t))
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"a name that leads out":    {tarball{file("../evil", "x")}.bytes(t), "../evil"},
		"an absolute name":         {tarball{file("/evil", "x")}.bytes(t), "/evil"},
		"a link that leads out":    {tarball{link("evil", "../../etc/passwd")}.bytes(t), "evil"},
		"a file below a link":      {tarball{link("l", "."), file("l/evil", "x")}.bytes(t), "l/evil"},
		"an archive that is cut":   {tarball{file("cut", "text")}.bytes(t)[:700], "cut"},
		"no archive":               {bytes.Repeat([]byte("no tar"), 1000), "tar"},
		"nothing":                  {nil, "end"},
		"a file in a file's place": {tarball{file("a", ""), file("a/evil", "")}.bytes(t), "a/evil"},
	} {
		res, rec := r.run(t, python("print(1)"), RunInput{Workspace: bytes.NewReader(c.data)})
		if got := describe(res); got != "failed prepare/invalid" || !strings.Contains(res.Failure.Message, c.want) {
			t.Errorf("%s: got %s %+v", name, got, res.Failure)
		}
		if len(rec.kinds) > 0 {
			t.Errorf("%s: events %v", name, rec.kinds)
		}
	}
	if res, _ := r.run(t, python("print(1)"), RunInput{}); res.Status != executor.StatusSucceeded {
		t.Error(describe(res))
	}
}

func TestAWorkspaceFailsEarlyHoweverMuchIsStillToCome(t *testing.T) {
	r := startRunner(t, testConfig(t))
	endless := &zeros{}
	in := RunInput{Workspace: struct{ *prefixed }{&prefixed{tarball{file("../evil", "x")}.bytes(t), endless}}}
	res, _ := r.run(t, python(""), in)
	if describe(res) != "failed prepare/invalid" {
		t.Error(describe(res))
	}
}

// prefixed is data, then zeros without end.
type prefixed struct {
	data []byte
	*zeros
}

func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.data) > 0 {
		n := copy(b, p.data)
		p.data = p.data[n:]
		return n, nil
	}
	return p.zeros.Read(b)
}

type zeros struct{}

func (*zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func TestCodeBesideAWorkspace(t *testing.T) {
	r := startRunner(t, testConfig(t))
	_, rec := r.run(t, python("print(open('data').read())"), RunInput{Workspace: tarball{file("data", "42")}.reader(t)})
	if rec.stdout() != "42\n" {
		t.Errorf("%q %s", rec.stdout(), rec.stderr())
	}
	res, _ := r.run(t, python("print(1)"), RunInput{Workspace: tarball{file("main.py", "")}.reader(t)})
	if describe(res) != "failed prepare/invalid" || !strings.Contains(res.Failure.Message, "main.py") {
		t.Errorf("%s %+v", describe(res), res.Failure)
	}
}

func TestTheProgramOwnsItsFiles(t *testing.T) {
	r := startRunner(t, testConfig(t))
	a := tarball{dir("d/"), file("d/f", "1"), link("l", "d/f"), file("x/y", "2")}
	_, rec := r.run(t, python(`
import os
for p in (".", "d", "d/f", "l", "x", "x/y", "main.py"):
    st = os.lstat(p)
    if (st.st_uid, st.st_gid) != (os.getuid(), os.getgid()): print(p, st.st_uid)
open("d/f", "a").write("more"); open("x/new", "w"); os.remove("l")
`), RunInput{Workspace: a.reader(t)})
	if rec.stdout()+rec.stderr() != "" {
		t.Error(rec.stdout(), rec.stderr())
	}
}

func TestArtifacts(t *testing.T) {
	cfg := testConfig(t)
	r := startRunner(t, cfg)
	secret := filepath.Join(cfg.WorkRoot, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil { //nolint:gosec // the program could read it; a link must not make it an artifact
		t.Fatal(err)
	}
	before := tarball{file("in.txt", "old"), file("changed.txt", "old"), file("same.txt", "same")}
	code := fmt.Sprintf(`
import os, socket
def put(p, data="x"):
    os.makedirs(os.path.dirname(p) or ".", exist_ok=True)
    open(p, "w").write(data)
put("out/a.txt", "A"); put("out/deep/b.txt", "B"); put("c.csv", "C"); put("changed.txt", "new and longer")
put(os.environ["TMPDIR"] + "/t.txt"); put("__pycache__/m.pyc"); put("out/empty.txt", ""); put("big.bin", "z" * 3000000)
os.symlink(%q, "link.txt"); os.symlink("%s", "dirlink"); os.mkfifo("pipe.txt")
s = socket.socket(socket.AF_UNIX); s.bind("sock.txt")
put("closed.txt", "closed"); os.chmod("closed.txt", 0)
os.mkdir("shut"); put("shut/f.txt", "f"); os.chmod("shut", 0)
`, secret, cfg.WorkRoot)
	for _, c := range []struct {
		name    string
		outputs []string
		changed bool
		want    string
	}{
		{"nothing that was not asked for", nil, false, ""},
		{"by glob", []string{"out/*.txt", "*.csv"}, false, "c.csv out/a.txt out/empty.txt"},
		{"by a glob over folders, no links, no pipes, no sockets", []string{"**/*.txt"}, false,
			"changed.txt closed.txt in.txt out/a.txt out/deep/b.txt out/empty.txt same.txt shut/f.txt"},
		{"new and changed ones", nil, true, "big.bin c.csv changed.txt closed.txt out/a.txt out/deep/b.txt out/empty.txt shut/f.txt"},
		{"both, each once", []string{"same.txt", "c.csv", "__pycache__/*"}, true,
			"__pycache__/m.pyc big.bin c.csv changed.txt closed.txt out/a.txt out/deep/b.txt out/empty.txt same.txt shut/f.txt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := python(code)
			start.Outputs, start.OutputsChanged = c.outputs, c.changed
			res, rec := r.run(t, start, RunInput{Workspace: before.reader(t)})
			if describe(res) != "succeeded exit 0" {
				t.Fatal(describe(res), rec.stderr(), res.Failure)
			}
			var names []string
			for _, a := range res.Artifacts {
				names = append(names, a.Path)
				if int64(len(rec.files[a.Path])) != a.SizeBytes {
					t.Errorf("%s: %d bytes, announced %d", a.Path, len(rec.files[a.Path]), a.SizeBytes)
				}
			}
			if got := strings.Join(names, " "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if !slices.Equal(slices.Sorted(maps.Keys(rec.files)), slices.Sorted(slices.Values(names))) {
				t.Error("the list and the files differ")
			}
		})
	}
}

func TestArtifactsWhoseNamesAreNoTextHaveNamesOfTheirOwn(t *testing.T) {
	r := startRunner(t, testConfig(t))
	start := python(`
for name in b"\xfe", b"\xff", "\ufffd".encode(), "\ufffd~2".encode():
    open(name, "wb").write(name)
`)
	start.OutputsChanged = true
	res, rec := r.run(t, start, RunInput{})
	if describe(res) != "succeeded exit 0" {
		t.Fatal(describe(res), rec.stderr(), res.Failure)
	}
	if len(res.Artifacts) != 4 || len(rec.files) != 4 {
		t.Errorf("four files came as %+v", res.Artifacts)
	}
}

func TestAFileMayBeOfAnyTime(t *testing.T) {
	r := startRunner(t, testConfig(t))
	start := python(`
import os
for name, time in ("a", 2**45), ("b", -2**45), ("c", 1_000_000_000):
    open(name, "w").close()
    os.utime(name, (time, time))
os.chmod("c", 0o4750)
`)
	start.OutputsChanged = true
	res, rec := r.run(t, start, RunInput{})
	if describe(res) != "succeeded exit 0" || len(rec.headers) != 3 {
		t.Fatal(describe(res), rec.stderr(), res.Failure, len(rec.headers))
	}
	if last := rec.headers[2]; last.Name != "c" || last.ModTime.Unix() != 1_000_000_000 {
		t.Errorf("got %s of %s", last.Name, last.ModTime)
	} else if last.Mode != 0o750 {
		t.Errorf("its mode is %o", last.Mode)
	}
}

func TestArtifactsAreBounded(t *testing.T) {
	r := startRunner(t, testConfig(t))
	for _, c := range []struct{ name, code, want string }{
		{"in number", "for i in range(10_001): open(f'f{i}.txt', 'w')", "more than 10000"},
		{"in the length of their names", deepFiles(90), "names of the artifacts are longer than 4194304 bytes"},
		{"in size", "f = open('a.txt', 'w'); f.truncate(5 << 20); f = open('b.txt', 'w'); f.truncate(5 << 20)", "exceed disk_mb"},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := python(c.code)
			start.Outputs = []string{"**/*.txt"}
			start.Limits.DiskBytes = 9 << 20
			if c.name != "in size" {
				start.Limits.DiskBytes = 64 << 20
			}
			res, _ := r.run(t, start, RunInput{})
			if describe(res) != "failed exit 0 collect/exhausted" || !strings.Contains(res.Failure.Message, c.want) {
				t.Errorf("%s %+v", describe(res), res.Failure)
			}
		})
	}
}

// deepFiles is Python that makes files whose paths have 51 KB each.
func deepFiles(n int) string {
	return fmt.Sprintf(`
import os
home = os.open(".", os.O_RDONLY)
for i in range(199):
    os.mkdir("d" * 255)
    os.chdir("d" * 255)
for i in range(%d):
    open(f"{i}.txt", "w").close()
os.fchdir(home)
`, n)
}

func TestABadGlobIsNamed(t *testing.T) {
	r := startRunner(t, testConfig(t))
	start := shell("exit 0")
	start.Outputs = []string{"../x"}
	if res, _ := r.run(t, start, RunInput{}); describe(res) != "failed prepare/invalid" || !strings.Contains(res.Failure.Message, "outputs[0]") {
		t.Errorf("%s %+v", describe(res), res.Failure)
	}
}

func TestAHostDirectory(t *testing.T) {
	r := startRunner(t, testConfig(t))
	host := workRoot(t)
	if err := os.Chmod(host, 0o755); err != nil { //nolint:gosec // the program reads it
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(host, "main.py"), []byte("import os; print(os.getcwd(), os.environ['HOME'] != os.getcwd())"), 0o644); err != nil { //nolint:gosec // the program reads it
		t.Fatal(err)
	}
	start := python("")
	start.Directory = host
	if _, rec := r.run(t, start, RunInput{}); rec.stdout() != host+" True\n" {
		t.Error(rec.stdout(), rec.stderr())
	}
	start = python("import os; print(os.getcwd())")
	start.Directory = host
	if _, rec := r.run(t, start, RunInput{}); rec.stdout() != host+"\n" {
		t.Error(rec.stdout(), rec.stderr())
	}
	link := filepath.Join(workRoot(t), "link")
	must(t, os.Symlink(host, link))
	for _, dir := range []string{"/no/such/folder", link, filepath.Join(host, "main.py")} {
		start.Directory = dir
		if res, _ := r.run(t, start, RunInput{}); describe(res) != "failed prepare/invalid" || res.Failure.Field != "host_directory" {
			t.Errorf("%s: %s %+v", dir, describe(res), res.Failure)
		}
	}
}

func TestAFaultNamesItsField(t *testing.T) {
	r := startRunner(t, testConfig(t))
	code, absent := python("pass"), python("")
	absent.Entrypoint = "nope.py"
	for _, c := range []struct {
		name  string
		start Start
		ws    tarball
		field string
	}{
		{"code beside a main.py", code, makeTar(t, file("main.py", "pass")), "code"},
		{"code beside a folder main.py", code, makeTar(t, file("main.py/x", "pass")), "code"},
		{"an entrypoint that is not there", absent, makeTar(t, file("main.py", "pass")), "entrypoint"},
	} {
		t.Run(c.name, func(t *testing.T) {
			res, _ := r.run(t, c.start, RunInput{Workspace: c.ws.reader(t)})
			if res.Failure == nil || res.Failure.Field != c.field || res.Failure.Code != executor.Invalid {
				t.Errorf("%+v", res.Failure)
			}
		})
	}
}

func TestSharedMemoryDoesNotOutliveItsProgram(t *testing.T) {
	needtest.Need(t, isRoot() && sandbox.ProbeNetworkNamespace() == nil, needtest.Root, "the right to make namespaces")
	r := startRunner(t, testConfig(t))
	const code = "import ctypes; c = ctypes.CDLL(None); print(c.shmget(0x70796578, 100, %s) < 0, c.msgget(0x70796578, %[1]s) < 0)"
	for _, c := range []struct{ flags, want string }{{"0o1666", "False False\n"}, {"0", "True True\n"}} {
		if _, rec := r.run(t, python(fmt.Sprintf(code, c.flags)), RunInput{}); rec.stdout() != c.want {
			t.Errorf("with flags %s: got %q, want %q", c.flags, rec.stdout(), c.want)
		}
	}
}
