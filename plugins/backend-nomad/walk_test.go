package nomadbackend

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
)

func TestTheWalkThroughWorksWordForWord(t *testing.T) {
	binary := nomadtest.Executor(t)
	commands, output := walkThrough(t)
	c := nomadtest.Start(t, nomadtest.Options{Clients: 2, RawExec: true})
	dir := t.TempDir()
	deploy, err := filepath.Abs("../../deploy")
	if err == nil {
		err = os.Symlink(deploy, filepath.Join(dir, "deploy"))
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx := awaittest.Context(t)
	// Job control gives each background command a number. Standard error is apart, because bash reports jobs there.
	cmd := exec.CommandContext(ctx, "bash", "-c", "set -euo pipefail\n"+commands)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "NOMAD_ADDR="+c.Address(), "NOMAD_CLI_SHOW_HINTS=false", "DOCKER_HOST="+c.Docker(), "IMAGE="+dockertest.Python(t),
		"PATH="+filepath.Dir(binary)+":"+filepath.Dir(nomadtest.Binary(t))+":"+os.Getenv("PATH"))
	// What the walk-through starts in the background is in its process group, and ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // none is left, unless a command has failed
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, said.String())
	}
	if dockertest.Private() { // else others may have containers there
		// Nomad waits half a minute for a worker that ends.
		if left := awaittest.None(func() []string { return dockertest.Containers(t, "python-executor.boot") }); len(left) > 0 {
			t.Errorf("the workers left containers: %v", left)
		}
	}
	lines := strings.Split(string(out), "\n")
	for _, want := range output {
		at := slices.Index(lines, want)
		if at < 0 {
			t.Fatalf("%q is not in its place in the output:\n%s\n%s", want, out, said.String())
		}
		lines = lines[at+1:]
	}
}

// walkThrough returns the commands of the walk-through in docs/nomad.md, and the lines that they must print, in this order.
func walkThrough(t *testing.T) (commands string, output []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/nomad.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## One server and two workers, step by step\n")
	section, _, ended := strings.Cut(section, "\n## ")
	if !found || !ended {
		t.Fatal("docs/nomad.md has no walk-through")
	}
	for i, part := range strings.Split(section, "```") {
		kind, text, _ := strings.Cut(part, "\n")
		switch {
		case i%2 == 0:
		case kind == "sh":
			commands += text
		case kind == "text":
			output = append(output, strings.Split(strings.TrimSpace(text), "\n")...)
		}
	}
	return commands, output
}
