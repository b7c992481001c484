package backendtest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

func abuseTemporaryRules() []rule {
	return []rule{
		{"BE-224", "abuse: what a program leaves in folders for temporary files is seen by no other program, neither beside it nor after it", abuseTemporary},
	}
}

// temporaryFolders are the folders of a machine to which every user may write.
var temporaryFolders = []string{"/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock", "/run/shm", "/var/lock"}

// leavePython writes a file, and a tree that is deeper than a process may have descriptors, into every folder for temporary
// files and into the folders below that were there before. It prints "up" and waits for the end of stdin.
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
		c.Skipf("no disk of a program's own is promised: folders for temporary files are the host's")
	}
	number := strings.TrimPrefix(c.bare().ID, "exe_")
	c.Defer(func() { removeTemporary("pyexec-law-" + number) })
	read, write := io.Pipe()
	c.Defer(func() { _ = write.Close() }) // a pipe's Close returns no error
	job := c.job(Program{Python: fmt.Sprintf(leavePython, pythonList(temporaryFolders)), Fake: "print up\nread-stdin"})
	job.Spec.Env = map[string]string{"PYEXEC_LAW_NUMBER": number}
	job.Stdin = c.source("stdin", nil, func() io.ReadCloser { return read })
	r := c.start(job)
	r.says("up\n")
	looks := []attempt{
		{"a file in a folder for temporary files", always, look(number, "path.endswith(name)")},
		{"a tree in a folder for temporary files", always, look(number, "path.endswith(name + '-deep')")},
	}
	c.try(looks)
	_ = write.Close() // a pipe's Close returns no error
	r.wait().succeeded()
	for range 3 { // a Backend may keep several sandboxes and take another one than the last
		c.try(looks)
	}
}

// look returns an attempt's Python that finds what leavePython has left.
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

// pythonList returns names as a list in Python. Their characters need no escapes.
func pythonList(names []string) string { return "['" + strings.Join(names, "', '") + "']" }

// removeTemporary removes what a backend without private folders let the case write on this host.
func removeTemporary(name string) {
	for _, root := range temporaryFolders {
		for _, pattern := range []string{root + "/" + name + "*", root + "/*/" + name + "*"} {
			paths, err := filepath.Glob(pattern)
			if err != nil {
				continue // the pattern is the suite's own
			}
			for _, p := range paths {
				_ = os.RemoveAll(p) // best effort
			}
		}
	}
}
