package backendtest

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

func abuseFileRules() []rule {
	return []rule{
		{"BE-221", "abuse: a tar bomb fails in phase prepare, and its neighbour answers meanwhile", abuseTar},
		{"BE-222", "abuse: Artifacts are the program's own files, also while they are being replaced by links", abuseLinks},
		{"BE-223", "abuse: all processes end with their program, also those that hide: sessions, daemons, orphans, stopped ones", abuseSurvivors},
	}
}

func lines(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.Lines(text) {
			if !yield(strings.TrimSuffix(line, "\n")) {
				return
			}
		}
	}
}

// bomb returns a tar with one entry that has n bytes. The header of the entry tells size.
func bomb(name string, size, n int64) func() io.ReadCloser {
	var head bytes.Buffer
	if err := tar.NewWriter(&head).WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, Typeflag: tar.TypeReg}); err != nil {
		panic(err) // a bug in the table of the suite
	}
	return func() io.ReadCloser {
		return io.NopCloser(io.MultiReader(bytes.NewReader(head.Bytes()), &pieces{left: n}))
	}
}

func abuseTar(c *Case) {
	bombs := map[string]func() io.ReadCloser{
		"an entry of 8 EiB that ends early": bomb("huge.bin", 1<<62, 1<<20),
		"a name that is too long for any file": func() io.ReadCloser {
			return io.NopCloser(bytes.NewReader(archive(entry{name: strings.Repeat("n", 5000), text: "x"})))
		},
		"a thousand links in a circle that lead to a file outside": func() io.ReadCloser {
			return io.NopCloser(bytes.NewReader(archive(entry{name: "a", kind: tar.TypeSymlink, link: "b"}, entry{name: "b", kind: tar.TypeSymlink, link: "/etc"},
				entry{name: "a/passwd", text: "x"})))
		},
	}
	if c.caps().Disk {
		bombs["more than the disk holds"] = bomb("big.bin", 1<<30, 1<<30)
		bombs["many files, more than the disk holds"] = func() io.ReadCloser {
			read, write := io.Pipe()
			go func() {
				w := tar.NewWriter(write)
				text := make([]byte, 64<<10)
				var err error
				for i := 0; err == nil && i < 4096; i++ {
					if err = w.WriteHeader(&tar.Header{Name: fmt.Sprintf("d/%d", i), Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err == nil {
						_, err = w.Write(text)
					}
				}
				_ = write.CloseWithError(err) // it returns nil
			}()
			return read
		}
	}
	for what, open := range bombs {
		n := c.neighbour()
		job := c.job(helloProgram)
		job.Limits.DiskBytes = 16 << 20
		if c.caps().Disk {
			job.Spec.Limits.DiskBytes = 16 << 20
		}
		job.Workspace = c.source("workspace", nil, open)
		r := c.start(job)
		n.answers()
		r.wait()
		n.leaves()
		if r.err != nil || r.hasStarted() || r.result.Status != executor.StatusFailed || r.result.Failure == nil || r.result.Failure.Phase != executor.PhasePrepare {
			c.Errorf("%s: %s, error %v", what, r.verdict(), r.err)
		}
	}
}

func abuseLinks(c *Case) {
	c.need(c.caps().Artifacts, "artifacts")
	secret := c.hostFile("secret", "not-for-you", 0o644)
	linked := fmt.Sprintf("('/etc/passwd', %q)", secret)
	if c.separation() == always {
		linked = "()" // the host's files are the program's own, and it may link what it could as well copy
	}
	job := c.job(Program{
		Python: fmt.Sprintf(`
import os, sys, time
secret = %q
os.mkdir("out")
open("out/own", "w").write("own")
os.symlink(secret, "out/link")
os.symlink("/etc", "out/folder")
os.symlink("../" * 60 + "etc/passwd", "out/relative")
os.mkfifo("out/fifo")
for name in %s:
    try:
        os.link(name, "out/hard" + str(len(name)))
    except OSError:
        pass
# A child that goes on changing names until it is ended: files for links, a folder for a link to one.
if os.fork() == 0:
    os.setsid()
    print("racing", flush=True)
    while True:
        for what in ("file", "link", "folder"):
            try:
                if what == "file":
                    open("new", "w").write("own")
                elif what == "link":
                    os.symlink(secret, "new")
                else:
                    os.symlink("/etc", "newdir")
                    os.rename("newdir", "out/dir")
                    os.unlink("out/dir")
                    os.mkdir("out/dir")
                    open("out/dir/passwd", "w").write("own")
                    os.unlink("out/dir/passwd")
                    os.rmdir("out/dir")
                    continue
                os.rename("new", "out/swapped")
            except OSError:
                pass
time.sleep(0.3)
`, secret, linked),
		Fake: "write-file out/own own\nsymlink " + secret + " out/link\nsymlink /etc out/folder\nmkfifo out/fifo\nprint racing",
	})
	job.Spec.Outputs = []string{"out/**"}
	n := c.neighbour()
	r := c.start(job)
	n.answers()
	r.wait().succeeded()
	n.leaves()
	if own, ok := r.file("out/own"); !ok || string(own) != "own" {
		c.Errorf("its own file was not collected: %q", own)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.artifacts {
		if text := string(a.data); text != "own" && text != "" {
			c.Errorf("artifact %q holds %q", a.header.Name, clip(text))
		}
		if a.header.Typeflag != tar.TypeReg && a.header.Typeflag != tar.TypeDir {
			c.Errorf("artifact %q is of type %q, which leads elsewhere", a.header.Name, a.header.Typeflag)
		}
	}
}

func abuseSurvivors(c *Case) {
	job := c.job(Program{
		Python: `
import os, signal, sys, time
def hide(how):
    for s in signal.valid_signals():
        try:
            signal.signal(s, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    if how != "group":
        os.setsid()
    else:
        os.setpgid(0, 0)
    if how in ("daemon", "stopped", "chain"):
        for _ in range(8 if how == "chain" else 1):
            if os.fork():
                os._exit(0)
    if how != "holds":
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
    os.chdir("/")
    if how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        if how == "runs":
            if os.fork():
                os._exit(0)
        time.sleep(0.05)
for how in ("session", "daemon", "group", "stopped", "chain", "runs", "holds"):
    if os.fork() == 0:
        hide(how)
time.sleep(0.5)
print("up", flush=True)
`,
		Fake: "spawn-grandchild hidden\nprint up",
	})
	job.Spec.Args = []string{c.mark()}
	n := c.neighbour()
	r := c.start(job)
	n.answers()
	r.wait().succeeded().prints("up\n")
	c.noneLeft()
	n.leaves()
	if r.result.Wall > late {
		c.Errorf("it took %s to end", r.result.Wall)
	}
}
