//go:build linux

package runner

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// BenchmarkBareExec is the floor: /bin/true with its output on pipes, by os/exec.
func BenchmarkBareExec(b *testing.B) {
	for b.Loop() {
		if _, err := exec.Command("/bin/true").CombinedOutput(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRun is /bin/true through a resident runner with everything that this process may use.
func BenchmarkRun(b *testing.B) {
	r := startRunner(b, testConfig(b))
	start := shell("")
	start.Command = []string{"/bin/true"}
	for b.Loop() {
		r.run(b, start, RunInput{})
	}
}

// BenchmarkRunBare is the same without uid, mounts, namespaces and control groups.
func BenchmarkRunBare(b *testing.B) {
	r := startRunner(b, Config{WorkRoot: workRoot(b)})
	start := shell("")
	start.Command = []string{"/bin/true"}
	for b.Loop() {
		r.run(b, start, RunInput{})
	}
}

// BenchmarkWorkspace sends 256 MiB through the connection into a folder on the disk, and into a tmpfs.
func BenchmarkWorkspace(b *testing.B) {
	data := tarball{file("large", strings.Repeat("0123456789abcdef", 16<<20))}.bytes(b)
	for _, c := range []struct {
		name  string
		tmpfs bool
	}{{"disk", false}, {"tmpfs", true}} {
		b.Run(c.name, func(b *testing.B) {
			cfg := testConfig(b)
			cfg.Tmpfs, cfg.Box = cfg.Tmpfs && c.tmpfs, cfg.Box && c.tmpfs
			r := startRunner(b, cfg)
			start := shell("exit 0")
			start.Limits.DiskBytes = 1 << 30
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				r.run(b, start, RunInput{Workspace: bytes.NewReader(data)})
			}
		})
	}
}
