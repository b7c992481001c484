//go:build linux

package batch

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/job"
)

func TestAJobRuns(t *testing.T) {
	p := newPlace(t)
	p.write("stdin", []byte("from stdin"))
	o := p.run(p.python("import sys, os\nprint('hello', sys.stdin.read(), os.getuid(), sys.argv[0], sys.version.split()[0])\nprint('oops', file=sys.stderr)\nsys.exit(3)"))
	if o.brief() != "failed exit 3" || o.code != 3 || o.begin.ExecutionID != "exe_1" || len(o.started) != 1 || o.started[0].PID != 0 {
		t.Fatalf("%s, code %d, %+v %+v\n%s", o.brief(), o.code, o.begin, o.started, &o.stderr)
	}
	if !strings.HasPrefix(o.out[0], "hello from stdin ") || o.out[1] != "oops\n" || o.stdout.String() != o.out[0] || o.stderr.String() != o.out[1] {
		t.Errorf("%q, copied %q %q", o.out, o.stdout.String(), o.stderr.String())
	}
	if v := o.result.PythonVersion; v == "" || !strings.HasSuffix(o.out[0], " "+v+"\n") || o.started[0].PythonVersion != v || o.result.ImageDigest != "sha256:1" {
		t.Errorf("%q %+v", v, o.result)
	}
	if o.result.Phases.Prepare <= 0 || o.result.StdoutBytes != int64(len(o.out[0])) || o.result.Status != executor.StatusFailed {
		t.Errorf("%+v", o.result)
	}
}

func TestHowAProgramEnds(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		change func(*job.Start)
		wants  string
		code   int
	}{
		"exit code 0":         {"exit 0", nil, "succeeded exit 0", 0},
		"exit code 255":       {"exit 255", nil, "failed exit 255", 255},
		"a signal of its own": {"kill -SEGV $$", nil, "failed SIGSEGV", 128 + 11},
		"no such command": {"", func(s *job.Start) { s.Start.Command = []string{"no-such-command"} },
			"failed start not_found : no-such-command: not found on PATH", ExitNotRun},
		"no interpreter": {"", func(s *job.Start) { s.Start.Command, s.Start.Code, s.Start.Path = nil, "1", "/nowhere" },
			"failed start not_found docker_image: the image has neither python3 nor python on its PATH", ExitNotRun},
		"another Python": {"", func(s *job.Start) { s.Start.Command, s.Start.Code, s.PythonVersion = nil, "1", "2.1" },
			"error invalid python_version: must match the image, whose Python is", ExitNotRun},
		"root": {"", func(s *job.Start) { s.Config.UID = 0 }, "error invalid uid: must be a user and a group that are not root", ExitNotRun},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			start := p.start(c.script)
			if c.change != nil {
				c.change(&start)
			}
			o := p.run(start)
			if !strings.HasPrefix(o.brief(), c.wants) || o.code != c.code {
				t.Errorf("%s, code %d\n%s", o.brief(), o.code, &o.stderr)
			}
		})
	}
}

func TestTheTimeOfAJobIsLimited(t *testing.T) {
	for script, c := range map[string]struct {
		wants string
		code  int
		grace time.Duration
	}{
		"echo up; exec sleep 1000000":                        {"timed_out SIGTERM run exhausted config.timeout_seconds", 128 + 15, awaittest.Forever},
		"trap '' TERM; echo up; while :; do sleep 0.1; done": {"timed_out SIGKILL run exhausted config.timeout_seconds", 128 + 9, 100 * time.Millisecond},
	} {
		o := awaittest.Ladder(t, 300*time.Millisecond, func(limit time.Duration) (*outcome, bool) {
			p := newPlace(t)
			start := p.start(script)
			start.Start.Limits.Timeout, start.Start.Limits.KillGrace = limit, c.grace
			o := p.run(start)
			return o, o.out[0] != ""
		})
		if !strings.HasPrefix(o.brief(), c.wants) || o.code != c.code {
			t.Errorf("%s: %s, code %d\n%s", script, o.brief(), o.code, &o.stderr)
		}
	}
}

func TestARefusalNamesItsFieldAcrossTheFile(t *testing.T) {
	p := newPlace(t)
	start := p.python("1")
	start.PythonVersion = "2.1"
	o := p.run(start)
	if e, ok := errors.AsType[*executor.Error](o.err); !ok || len(e.Fields) != 1 || e.Fields[0].Field != "python_version" {
		t.Errorf("%#v", o.err)
	}
}

func TestABadInputIsAnErrorInTheEvents(t *testing.T) {
	p := newPlace(t)
	p.write(job.StartFile, []byte("{"))
	if o := p.outcome(p.launch("job")); executor.CodeOf(o.err) != executor.Invalid || o.code != ExitNotRun {
		t.Errorf("%s, code %d", o.brief(), o.code)
	}
}

func TestAJobRunsOnceInAFolder(t *testing.T) {
	p := newPlace(t)
	p.run(p.start("echo one"))
	r := p.launch("job")
	if code := r.end(); code != ExitNotRun || !strings.Contains(r.stderr.String(), "has begun before") {
		t.Errorf("code %d, %q", code, &r.stderr)
	}
	if o := p.read(); o.out[0] != "one\n" {
		t.Error(o.out)
	}
}

func TestOutputIsKeptByteForByteUpToItsLimit(t *testing.T) {
	p := newPlace(t)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	start := p.python("import sys\nfor n in range(8192): sys.stdout.buffer.write(bytes(range(256)))\nsys.stdout.flush()\nfor n in range(500): sys.stderr.buffer.write(bytes([255]))")
	start.Start.Limits.OutputBytes = 1<<20 + 300
	o := p.run(start)
	want := strings.Repeat(string(all), 1<<20/256+2)[:1<<20+300]
	if o.out[0] != want || o.out[1] != strings.Repeat("\xff", 500) || o.brief() != "succeeded exit 0" {
		t.Errorf("%s: %d and %d bytes", o.brief(), len(o.out[0]), len(o.out[1]))
	}
	if !o.result.StdoutTruncated || o.result.StdoutBytes != 2<<20 || o.result.StderrTruncated {
		t.Errorf("%+v", o.result)
	}
	if o.stdout.String() != want[:copyBytes] || o.stderr.String() != o.out[1] {
		t.Errorf("copied %d and %d bytes", o.stdout.Len(), o.stderr.Len())
	}
}

func TestSmallPiecesOfOutputMakeFewRecords(t *testing.T) {
	p := newPlace(t)
	o := p.run(p.python("import os\nfor n in range(100000): os.write(1 + n % 2, b'x')"))
	st, err := os.Stat(filepath.Join(p.output, job.EventsFile))
	must(t, err)
	if len(o.out[0]) != 50000 || len(o.out[1]) != 50000 || st.Size() > 20*100_000 {
		t.Errorf("%d and %d bytes in a file of %d", len(o.out[0]), len(o.out[1]), st.Size())
	}
}

func TestAReaderOfTheLogWhoIsSlowHoldsNothingBack(t *testing.T) {
	p := newPlace(t)
	p.writeJSON(job.StartFile, p.python("import sys\nsys.stdout.write('x' * (3 << 20))"))
	r := p.process("job")
	in, out, err := os.Pipe()
	must(t, err)
	defer in.Close()
	r.Stdout = out
	must(t, r.Start())
	must(t, out.Close())
	if o := p.outcome(r); o.brief() != "succeeded exit 0" || len(o.out[0]) != 3<<20 || o.code != 0 {
		t.Errorf("%s, code %d, %d bytes", o.brief(), o.code, len(o.out[0]))
	}
}

func TestArtifactsAreWhereTheRecordsSay(t *testing.T) {
	p := newPlace(t)
	start := p.start("mkdir d; head -c 100000 /dev/zero >d/big; echo a >d/a; : >empty; ln -s a d/link; echo no >other")
	start.Start.Outputs = []string{"d/**", "empty"}
	o := p.run(start)
	if o.brief() != "succeeded exit 0" || len(o.files) != 3 || len(o.files["d/big"]) != 100000 || o.files["d/a"] != "a\n" || o.files["empty"] != "" {
		t.Errorf("%s: %d files: %q", o.brief(), len(o.files), o.files["d/a"])
	}
	if len(o.result.Artifacts) != 3 {
		t.Errorf("%+v", o.result.Artifacts)
	}
}

func TestTheWorkspaceIsUnpacked(t *testing.T) {
	p := newPlace(t)
	p.write(job.WorkspaceFile, tarOf(t, tar.Header{Name: "main.py", Mode: 0o644}, tar.Header{Name: "a/b", Mode: 0o600}))
	start := p.python("")
	start.Start.Args = []string{"x"}
	if o := p.run(start); o.brief() != "succeeded exit 0" || !slices.Equal(o.kinds, []string{"started"}) {
		t.Errorf("%s %q\n%s", o.brief(), o.kinds, &o.stderr)
	}
	for name, h := range map[string]tar.Header{
		"a name with ..":     {Name: "../evil", Mode: 0o644},
		"an absolute name":   {Name: "/tmp/evil", Mode: 0o644},
		"a link that leaves": {Name: "evil", Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink},
		"a device":           {Name: "evil", Typeflag: tar.TypeChar},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.write(job.WorkspaceFile, tarOf(t, h))
			if o := p.run(p.start("echo never")); !strings.HasPrefix(o.brief(), "failed prepare invalid : workspace: ") || !strings.Contains(o.brief(), "evil") || len(o.started) > 0 {
				t.Error(o.brief())
			}
		})
	}
	p = newPlace(t)
	p.write(job.WorkspaceFile, tarOf(t, tar.Header{Name: "main.py", Mode: 0o644, Size: 3})[:600])
	if o := p.run(p.start("echo never")); !strings.HasPrefix(o.brief(), "failed prepare invalid : workspace: ") {
		t.Errorf("a truncated tar: %s", o.brief())
	}
}

func tarOf(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		must(t, w.WriteHeader(&h))
		_, err := w.Write(make([]byte, h.Size))
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}
