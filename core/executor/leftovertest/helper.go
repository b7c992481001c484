package leftovertest

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// helperVariable makes a test binary a helper: a process that has something to leave behind.
const helperVariable = "PYEXEC_LEFTOVERTEST_HELPER"

// Help is for TestMain. In a helper it calls start, prints the folder that start returns, and waits to be killed. Else it does nothing.
func Help(start func() (dir string, err error)) {
	if os.Getenv(helperVariable) == "" {
		return
	}
	dir, err := start()
	if err != nil {
		_, _ = os.Stdout.WriteString("error " + strings.ReplaceAll(err.Error(), "\n", " ") + "\n")
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString(dir + "\n")
	_, _ = os.Stdin.Read(make([]byte, 1))
	os.Exit(0)
}

// StartHelper starts this test binary as a helper, with more variables, and returns the process and its folder.
func StartHelper(t testing.TB, variables ...string) (helper *exec.Cmd, dir string) {
	t.Helper()
	helper = exec.Command(os.Args[0]) //nolint:gosec // this test binary
	helper.Env = append(append(os.Environ(), helperVariable+"=1"), variables...)
	helper.Stderr = os.Stderr
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := helper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	dir = strings.TrimSpace(line)
	if err != nil || !filepath.IsAbs(dir) {
		_ = helper.Process.Kill()
		t.Fatalf("the helper wrote %q (%v), want the path of its folder", line, err)
	}
	return helper, dir
}
