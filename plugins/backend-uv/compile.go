package uvbackend

import (
	"context"
	"encoding/json"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/python-executor/python-executor/core/executor"
)

// compileCode compiles every .py file below its first argument, in one process per processor, at most 16. It skips a file that the
// compiler refuses. It prints one JSON object: if a process was killed by a signal or ran out of memory, the object has the signal
// and the file.
const compileCode = `import json, mmap, os, py_compile, sys
files = []
for folder, below, names in os.walk(sys.argv[1]):
    below.sort()
    files += [os.path.join(folder, n) for n in sorted(names) if n.endswith(".py")]
def work(mine, note):
    for path in mine:
        raw = os.path.relpath(path, sys.argv[1]).encode("utf-8", "surrogateescape")[:4000]
        note.seek(0); note.write(len(raw).to_bytes(2, "little") + raw)
        try:
            py_compile.compile(path, doraise=True)
        except MemoryError:
            os._exit(4)
        except py_compile.PyCompileError as e:
            if e.exc_type_name == "MemoryError": os._exit(4)
        except Exception:
            pass
    os._exit(0)
workers = {}
count = min(os.cpu_count() or 1, len(files), 16)
for i in range(count):
    note = mmap.mmap(-1, 4096)
    pid = os.fork()
    if pid == 0:
        try:
            work(files[i::count], note)
        finally:
            os._exit(4)
    workers[pid] = note
bad = None
while workers:
    pid, status = os.wait()
    note = workers.pop(pid, None)
    if note is not None and status != 0 and bad is None:
        size = int.from_bytes(note[:2], "little")
        bad = {"signal": status & 127, "file": note[2:2 + size].decode("utf-8", "replace")}
        for other in workers: os.kill(other, 9)
print(json.dumps(bad or {}))
`

// compiled is the output of compileCode. Both fields are empty after a success. A File without a Signal means a lack of memory.
type compiled struct {
	Signal int    `json:"signal"`
	File   string `json:"file"`
}

// compile writes bytecode, because programs may not write it. The interpreter runs without site-packages, so it executes no code of
// the packages it compiles (.pth files, sitecustomize).
func (b *builder) compile(ctx context.Context, x *buildSlot, i interpreter) (*executor.Failure, error) {
	packages, err := sitePackages(filepath.Join(x.temp, "env"))
	if err != nil {
		return nil, err
	}
	if size := sourceSize(packages); size > b.config.CompileBytes {
		return tooMuch("the packages have %d bytes of Python source, more than backends.%s.compile_bytes (%d)", size, b.name, b.config.CompileBytes), nil
	}
	var said boundedBuffer
	result, failure, err := x.run(ctx, false, map[string]string{"PYTHONMALLOC": ""}, &said, i.Path, "-I", "-S", "-c", compileCode, packages)
	if failure != nil || err != nil {
		return failure, err
	}
	var c compiled
	lines := strings.TrimSpace(said.String())
	if result.Status != executor.StatusOutOfMemory && json.Unmarshal([]byte(lastLine(lines)), &c) != nil {
		b.log.Warn("packages not compiled to bytecode", "status", result.Status, "output", lines)
		return nil, nil
	}
	switch {
	case result.Status == executor.StatusOutOfMemory, c.Signal == int(syscall.SIGKILL), c.Signal == 0 && c.File != "":
		return b.tooMuchMemory("compiling", c.File), nil
	case c.Signal != 0:
		return tooMuch("the interpreter ended by %s when it compiled %s", signalName(c.Signal), strconv.Quote(c.File)), nil
	}
	return nil, nil
}

func signalName(n int) string {
	return syscall.Signal(n).String() + " (signal " + strconv.Itoa(n) + ")"
}

// sourceSize returns the size in bytes of all .py files below dir.
func sourceSize(dir string) (size int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(e.Name(), ".py") {
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
				size += info.Size()
			}
		}
		return nil
	})
	return size
}
