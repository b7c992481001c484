package backendtest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

func abuseTemporaryRules() []rule {
	return []rule{
		{"BE-224", "abuse: files that a program leaves in folders for temporary files are seen by no other program, neither at the same time nor later", abuseTemporary},
	}
}

// temporaryFolders are the folders of a machine that every user may write to.
var temporaryFolders = []string{"/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock", "/run/shm", "/var/lock"}

// leavePython writes a file and a deep tree into every folder for temporary files, and into the existing folders below. The
// tree has more levels than a process may have descriptors. The program then prints "up" and waits for the end of stdin.
const leavePython = `
import os, sys
name = "pyexec-law-" + os.environ["PYEXEC_LAW_NUMBER"]
roots = %s + [os.environ.get("TMPDIR", "/tmp")]
for root in sorted({os.path.realpath(r) for r in roots if os.path.isdir(r)}):
    for folder in [root] + [e.path for e in os.scandir(root) if e.is_dir(follow_symlinks=False)]:
        try:
            with open(folder + "/" + name, "w") as f:
                f.write("left")
        except OSError:
            pass
        try:
            os.mkdir(folder + "/" + name + "-deep")
            os.chdir(folder + "/" + name + "-deep")
            for _ in range(1200):
                os.mkdir("d")
                os.chdir("d")
        except OSError:
            pass
print("up", flush=True)
sys.stdin.read()
`

func abuseTemporary(c *Case) {
	if !c.caps().Disk && c.caps().Isolation == executor.IsolationNone {
		c.warned("/tmp")
		return
	}
	number := strings.TrimPrefix(c.bare().ID, "exe_")
	c.Cleanup(func() { removeTemporary("pyexec-law-" + number) })
	leave := func(b executor.Backend) (r *running, end func()) {
		read, write := io.Pipe()
		end = func() { _ = write.Close() } // a pipe's Close returns no error
		c.Cleanup(end)
		job := c.job(Program{Python: fmt.Sprintf(leavePython, pythonList(temporaryFolders)), Fake: "print up\nread-stdin"})
		job.Spec.Env = map[string]string{"PYEXEC_LAW_NUMBER": number}
		job.Stdin = c.source("stdin", nil, func() io.ReadCloser { return read })
		r = c.startOn(b, job)
		r.says("up\n")
		return r, end
	}
	looks := []attempt{
		{"a file in a folder for temporary files", always, look(number, "path.endswith(name)")},
		{"a tree in a folder for temporary files", always, look(number, "path.endswith(name + '-deep')")},
	}
	r, end := leave(c.suite.backend)
	c.try(looks)
	end()
	r.wait().succeeded()
	for range 3 { // a Backend may have several sandboxes and not reuse the last one
		c.try(looks)
	}
	if c.suite.victim == nil {
		return
	}
	victim, kill := c.suite.victim()
	r, _ = leave(victim)
	kill()
	r.wait()
	next, _ := c.suite.victim()
	defer func(b executor.Backend) { c.suite.backend = b }(c.suite.backend)
	c.suite.backend = next
	for range 3 {
		c.try(looks)
	}
}

// warned records an error unless a warning of Info names what.
func (c *Case) warned(what string) {
	if !slices.ContainsFunc(c.suite.info.Warnings, func(w string) bool { return strings.Contains(w, what) }) {
		c.Errorf("no warning names %s, which the backend does not keep programs from: %q", what, c.suite.info.Warnings)
	}
}

// look returns the Python of an attempt to find the files of leavePython.
func look(number, found string) string {
	return fmt.Sprintf(`
name = "pyexec-law-%s"
roots = %s + [os.environ.get("TMPDIR", "/tmp")]
def below(root):
    paths = []
    for e in os.scandir(root):
        paths.append(e.path)
        try:
            if e.is_dir(follow_symlinks=False):
                paths += [inner.path for inner in os.scandir(e.path)]
        except OSError:
            pass
    return paths
seen = []
for root in roots:
    try:
        seen += [path for path in below(root) if %s]
    except OSError:
        pass
if not seen:
    raise Refused("nothing is to be seen")
return seen`, number, pythonList(temporaryFolders), found)
}

// pythonList returns names as a Python list. The names must not need escapes.
func pythonList(names []string) string { return "['" + strings.Join(names, "', '") + "']" }

// removeTemporary removes the files of the case from this host, if the backend has no private folders.
func removeTemporary(name string) {
	for _, root := range temporaryFolders {
		for _, pattern := range []string{root + "/" + name + "*", root + "/*/" + name + "*"} {
			paths, err := filepath.Glob(pattern)
			if err != nil {
				continue // the patterns of the suite are valid
			}
			for _, p := range paths {
				_ = os.RemoveAll(p) // best effort
			}
		}
	}
}
