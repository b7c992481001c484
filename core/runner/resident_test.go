package runner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// mapsFiles is Python code that maps the interpreter's own file so often that its pages, which others have mapped before, are 64 MiB of resident memory.
const mapsFiles = `
import mmap, os, resource, sys
keep = []
with open(sys.executable, "rb") as f:
    size = os.fstat(f.fileno()).st_size
    for _ in range((64 << 20) // size + 1):
        m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
        for at in range(0, size, 4096): m[at]
        keep.append(m)
`

// says prints what getrusage says.
const says = `
def most(): return max(resource.getrusage(w).ru_maxrss for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(most())
`

// inexact is how much less than before the kernel may say, which counts pages for each processor and adds them up late.
const inexact = 1 << 20

// wantResident compares the Result with what its program has printed, in KiB.
func wantResident(t *testing.T, res executor.Result, printed string) {
	t.Helper()
	var kib int64
	_, err := fmt.Sscan(printed, &kib)
	// What an interpreter does at its end may need a little more.
	if err != nil || res.PeakResidentBytes < kib<<10-inexact || res.PeakResidentBytes > kib<<10+8<<20 {
		t.Errorf("%d bytes of resident memory, the program says %s KiB, %v", res.PeakResidentBytes, strings.TrimSpace(printed), err)
	}
}

func TestThePeakOfResidentMemoryIsTheKernels(t *testing.T) {
	cfg := boxConfig(t)
	r := startBoxed(t, cfg)
	for name, c := range map[string]struct {
		code string
		peak int64 // of the memory that is charged to the program, at most
	}{
		"little":                        {"import resource" + says, 40 << 20},
		"of files":                      {mapsFiles + says, 40 << 20},
		"an end with objects to end":    {mapsFiles + says + "sys.exit(0)", 40 << 20},
		"one that nobody watches":       {mapsFiles + says + "import signal", 40 << 20},
		"without an end":                {mapsFiles + says + "sys.stdout.flush(); os._exit(0)", 40 << 20},
		"closes its output before that": {mapsFiles + says + "sys.stdout.flush(); os.close(1); os.close(2); os._exit(0)", 40 << 20},
		"of its own":                    {"import resource\nx = b'x' * (64 << 20); del x" + says, 128 << 20},
		"of a child":                    {"import os, resource\nif not (pid := os.fork()):\n    x = b'x' * (64 << 20)\n    os._exit(0)\nos.waitpid(pid, 0)" + says, 128 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(res executor.Result, rec *record) {
				t.Helper()
				if got := describe(res); got != "succeeded exit 0" {
					t.Fatalf("%s\n%s", got, rec.stderr())
				}
				wantResident(t, res, rec.stdout())
				if sandbox.Cgroups(cfg.Cgroups).Enforces("memory") && res.PeakMemoryBytes > c.peak {
					t.Errorf("%d bytes are charged to it", res.PeakMemoryBytes)
				}
			}
			check(r.run(t, python(c.code), RunInput{}))
			awaittest.Until(t, "a fork", func() bool {
				res, rec := r.run(t, forked(c.code), RunInput{})
				check(res, rec)
				return (<-rec.started).Start == executor.StartFork
			})
		})
	}
}

// Without a box each program is a new interpreter, and without control groups the kernel knows nothing else.
func TestThePeakOfResidentMemoryWithoutABox(t *testing.T) {
	cfg := testConfig(t)
	cfg.Cgroups = nil
	r := startRunner(t, cfg)
	res, rec := r.run(t, python(mapsFiles+says), RunInput{})
	wantResident(t, res, rec.stdout())
	res, _ = r.run(t, python("import os; os.abort()"), RunInput{})
	if res.PeakResidentBytes < 1<<20 {
		t.Errorf("%d bytes of a program that a signal ended", res.PeakResidentBytes)
	}
}

func TestThePeakOfResidentMemoryInASession(t *testing.T) {
	r := openSession(t, pythonSession())
	res, rec := r.cell(t, mapsFiles+says)
	wantResident(t, res, rec.stdout())
	before := res.PeakResidentBytes
	if res, _ = r.cell(t, "for m in keep: m.close()"); res.PeakResidentBytes < before-inexact {
		t.Errorf("%d bytes after a peak of %d: it is that of the interpreter", res.PeakResidentBytes, before)
	}
	if res, _ = r.cell(t, "os._exit(3)"); res.PeakResidentBytes < before-inexact {
		t.Errorf("%d bytes of an interpreter that has ended, after a peak of %d", res.PeakResidentBytes, before)
	}
}
