package backendtest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

func prepareRules() []rule {
	return []rule{
		{"BE-50", "requirements are installed, listed with their versions in Started and Result, and reported by Progress", requirementWorks},
		{"BE-51", "a requirement that cannot be resolved fails in phase prepare as invalid and is named", requirementUnresolvable},
		{"BE-52", "python_version selects an interpreter of that minor version, or is refused", pythonVersion},
		{"BE-53", "a broken input stream is an error of Run, not a Failure of the user", brokenSource},
		{"BE-54", "a failing pre_command is a Failure of phase prepare, code invalid, with the command, its exit code and its output", commandFails},
		{"BE-59", "a requirement at an address that is not public fails in phase prepare as invalid, without a connection, and whatever is there", closedAddresses},
	}
}

func hostileRules() []rule {
	return []rule{
		{"BE-55", "a tar entry that leads out of the work folder, or is no file, folder or link, fails in phase prepare as invalid and is named", hostileEntries},
		{"BE-56", "a workspace that is not a whole uncompressed tar fails in phase prepare as invalid", notATar},
		{"BE-57", "of duplicate names in a tar the last one counts", duplicates},
		{"BE-58", "a Source that has a local file's name is read as its stream would be, and the file stays", localFile},
	}
}

func requirementWorks(c *Case) {
	q := c.suite.options.Requirement
	job := c.job(Program{
		Python: "import " + q.Import + " as m\nprint(m.__version__)\n",
		Fake:   "import " + q.Import,
	})
	job.Spec.Requirements = q.Text
	if !c.caps().Requirements {
		if q.Text == "" {
			job.Spec.Requirements = "requests==2.32.3"
		}
		c.refused(job, "requirements_txt")
		return
	}
	if q.Text == "" {
		c.Skipf("the harness names no requirement that can be installed")
	}
	r := c.run(job).succeeded().prints(q.Version + "\n")
	if !slices.Contains(r.result.Requirements, q.Resolved) || !slices.IsSorted(r.result.Requirements) {
		c.Errorf("Result.Requirements is %q, want %q in it, sorted", r.result.Requirements, q.Resolved)
	}
	if !slices.Equal(r.started[0].Requirements, r.result.Requirements) {
		c.Errorf("Started has %q, the Result %q", r.started[0].Requirements, r.result.Requirements)
	}
	if !slices.ContainsFunc(r.progress, func(p executor.Progress) bool { return p.Phase == executor.PhasePrepare }) {
		c.Logf("no Progress: it may have been in a cache")
	}
	// The second job has the same requirements, the third has none and must not see the package.
	c.run(again(c, job)).succeeded().prints(q.Version + "\n")
	without := again(c, job)
	without.Spec.Requirements = ""
	c.run(without).status(executor.StatusFailed).exit(1)
}

// again returns the same job with another id.
func again(c *Case, job executor.Job) executor.Job {
	job.ID = c.bare().ID
	return job
}

func commandFails(c *Case) {
	c.need(c.caps().PreCommands, "pre_commands")
	job := c.job(helloProgram)
	job.Spec.PreCommands = []string{"true", "echo last words; exit 7"}
	r := c.run(job).failure(executor.PhasePrepare, executor.Invalid, "pre_commands[1]", "exit code 7")
	if f := r.result.Failure; f.Field != "pre_commands" || !slices.Contains(strings.Split(f.Message, "\n"), "last words") {
		c.Errorf("the failure's field is %q, and its message has no line %q: %s", f.Field, "last words", f.Message)
	}
}

func requirementUnresolvable(c *Case) {
	c.need(c.caps().Requirements, "requirements")
	job := c.job(helloProgram)
	job.Spec.Requirements = "no-such-package-pyexec-law==9.9.9"
	c.run(job).failure(executor.PhasePrepare, executor.Invalid, "no-such-package-pyexec-law")
	// An invalid line is refused, or fails in preparation. Both are errors of the user's input.
	job = c.job(helloProgram)
	job.Spec.Requirements = "this is === not a requirement"
	if r := c.start(job).wait(); executor.CodeOf(r.err) != executor.Invalid {
		r.failure(executor.PhasePrepare, executor.Invalid)
	}
}

func pythonVersion(c *Case) {
	show := Program{
		Python: "import sys\nprint('%d.%d.%d' % sys.version_info[:3])\n",
		Fake:   "python",
	}
	for _, version := range c.caps().PythonVersions {
		job := c.job(show)
		job.Spec.PythonVersion = version
		r := c.run(job).succeeded()
		if got := strings.TrimSpace(r.stdout()); !strings.HasPrefix(got, version+".") || r.result.PythonVersion != got || r.started[0].PythonVersion != got {
			c.Errorf("asked for %s: the program sees %q, the Result says %q, Started %q", version, got, r.result.PythonVersion, r.started[0].PythonVersion)
		}
	}
	r := c.program(show).succeeded()
	if got := strings.TrimSpace(r.stdout()); r.result.PythonVersion != got {
		c.Errorf("by default the program sees %q and the Result says %q", got, r.result.PythonVersion)
	}
	job := c.job(show)
	job.Spec.PythonVersion = "2.1"
	c.refused(job, "python_version")
}

func brokenSource(c *Case) {
	cut := errors.New("the upload was cut")
	tarball := archive(entry{name: "main.py", text: c.say("never")}, entry{name: "pad", text: strings.Repeat("x", 4096)})
	for name, open := range map[string]func() (io.ReadCloser, error){
		"a workspace that cannot be opened": func() (io.ReadCloser, error) { return nil, cut },
		"a workspace that breaks off":       func() (io.ReadCloser, error) { return io.NopCloser(breaking(tarball[:1500], cut)), nil },
	} {
		job := c.bare()
		job.Workspace = &executor.Source{Open: open, SizeBytes: -1}
		r := c.start(job).wait()
		if r.err == nil {
			c.Errorf("%s: no error, %s", name, r.verdict())
		}
		if r.hasStarted() {
			c.Errorf("%s: a program was started", name)
		}
	}
}

// breaking is a reader of data that returns err instead of io.EOF.
func breaking(data []byte, err error) io.Reader {
	return io.MultiReader(bytes.NewReader(data), failing{err})
}

type failing struct{ err error }

// Read implements io.Reader.
func (f failing) Read([]byte) (int, error) { return 0, f.err }

func hostileEntries(c *Case) {
	for _, e := range []struct {
		what    string
		entries []entry
		named   string
	}{
		{"a name with ..", []entry{{name: "../evil"}}, "../evil"},
		{"a name with .. inside", []entry{{name: "a/../../evil"}}, "a/../../evil"},
		{"an absolute name", []entry{{name: "/tmp/evil"}}, "/tmp/evil"},
		{"a symlink to ..", []entry{{name: "evil", kind: tar.TypeSymlink, link: "../../etc/passwd"}}, "evil"},
		{"an absolute symlink", []entry{{name: "evil", kind: tar.TypeSymlink, link: "/etc/passwd"}}, "evil"},
		{"a file through a symlink", []entry{
			{name: "dir", kind: tar.TypeSymlink, link: "/tmp"}, {name: "dir/evil", text: "x"},
		}, "dir"},
		{"a hard link to the host", []entry{{name: "evil", kind: tar.TypeLink, link: "/etc/passwd"}}, "evil"},
		{"a hard link to ..", []entry{{name: "evil", kind: tar.TypeLink, link: "../../etc/passwd"}}, "evil"},
		{"a character device", []entry{{name: "evil", kind: tar.TypeChar}}, "evil"},
		{"a block device", []entry{{name: "evil", kind: tar.TypeBlock}}, "evil"},
		{"a FIFO", []entry{{name: "evil", kind: tar.TypeFifo}}, "evil"},
	} {
		job := c.bare()
		c.workspace(&job, archive(append([]entry{{name: "main.py", text: c.say("never")}}, e.entries...)...))
		r := c.start(job).wait()
		if f := r.result.Failure; r.err != nil || r.result.Status != executor.StatusFailed || f == nil || f.Phase != executor.PhasePrepare ||
			f.Code != executor.Invalid || !strings.Contains(f.Message, e.named) || r.hasStarted() {
			c.Errorf("%s: %s, error %v; want failed, phase prepare, code invalid, naming %q", e.what, r.verdict(), r.err, e.named)
		}
	}
	// Links that stay in the work folder are allowed.
	job := c.job(Program{Python: "print(open('b/link').read(), open('hard').read())\n", Fake: "cat b/link\nwrite \" \"\ncat hard\nprint \"\""})
	c.workspace(&job, archive(
		entry{name: "a/file", text: "in"},
		entry{name: "b/link", kind: tar.TypeSymlink, link: "../a/file"},
		entry{name: "hard", kind: tar.TypeLink, link: "a/file"},
	))
	c.run(job).succeeded().prints("in in\n")
}

func notATar(c *Case) {
	whole := archive(entry{name: "main.py", text: c.say("never")}, entry{name: "large", text: strings.Repeat("x", 10000)})
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write(whole); err != nil {
		c.Fatalf("gzip: %v", err)
	}
	if err := w.Close(); err != nil {
		c.Fatalf("gzip: %v", err)
	}
	for name, data := range map[string][]byte{
		"cut in a file":   whole[:4096],
		"cut in a header": whole[:1300],
		"garbage":         bytes.Repeat([]byte("not a tar at all "), 500),
		"gzip":            zipped.Bytes(),
		"a bad checksum":  append(bytes.Repeat([]byte{'a'}, 512), whole...),
		"empty":           nil,
	} {
		job := c.bare()
		c.workspace(&job, data)
		r := c.start(job).wait()
		if f := r.result.Failure; r.err != nil || r.result.Status != executor.StatusFailed || f == nil || f.Phase != executor.PhasePrepare ||
			f.Code != executor.Invalid || r.hasStarted() {
			c.Errorf("%s: %s, error %v; want failed, phase prepare, code invalid", name, r.verdict(), r.err)
		}
	}
}

func duplicates(c *Case) {
	job := c.bare()
	c.workspace(&job, archive(
		entry{name: "main.py", text: c.say("first")},
		entry{name: "data.txt", text: "a longer first text"},
		entry{name: "./data.txt", text: "last"},
		entry{name: "main.py", text: c.in(Program{Python: "print(open('data.txt').read())\n", Fake: "cat data.txt\nprint \"\""})},
	))
	c.run(job).succeeded().prints("last\n")
}

func localFile(c *Case) {
	dir, err := os.MkdirTemp("", "pyexec-law-")
	if err != nil {
		c.Fatalf("temporary folder: %v", err)
	}
	c.Cleanup(func() { _ = os.RemoveAll(dir) }) // best effort
	file := func(name string, data []byte) *executor.Source {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			c.Fatalf("write: %v", err)
		}
		return &executor.Source{
			Open:       func() (io.ReadCloser, error) { return os.Open(path) },
			SizeBytes:  int64(len(data)),
			Replayable: true,
			Path:       path,
		}
	}
	job := c.job(Program{
		Python: "import sys\nprint(open('a.txt').read())\nprint(sys.stdin.read())\n",
		Fake:   "cat a.txt\nprint \"\"\nread-stdin\nprint \"\"",
	})
	job.Workspace = file("workspace.tar", archive(entry{name: "a.txt", text: "from the tar"}))
	job.Stdin = file("stdin", []byte("from a file"))
	for range 2 {
		c.run(again(c, job)).succeeded().prints("from the tar\nfrom a file\n")
	}
	for _, s := range []*executor.Source{job.Workspace, job.Stdin} {
		if info, err := os.Stat(s.Path); err != nil || info.Size() != s.SizeBytes {
			c.Errorf("the file behind a Source was touched: %v", err)
		}
	}
}
