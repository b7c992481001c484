//go:build linux

package runner

import (
	"os/exec"
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
