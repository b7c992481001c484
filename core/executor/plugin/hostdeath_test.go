package plugin_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// beHost launches a plugin, has it run something, says its number and waits to be killed.
func beHost(options string) {
	path, args, err := plugintest.Command("odd")
	if err != nil {
		panic(err)
	}
	p, err := plugin.Launch(context.Background(), plugin.LaunchOptions{
		Path: path, Args: args, RunDir: os.Getenv(hostEnv + "_DIR"),
		Configure: plugin.Configure{Name: "odd", Options: []byte(options)},
	})
	if err != nil {
		panic(err)
	}
	s := newSink()
	go func() { _, _ = p.Backend().Run(context.Background(), job(os.Getenv(hostEnv+"_JOB")), s) }()
	<-s.first
	fmt.Println(p.PID())
	select {}
}

func TestTheDeathOfTheHostEndsThePlugin(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		job    string
		attach bool
		seen   string
	}{
		"and what it runs is stopped first":         {job: "wait", seen: executor.ErrCallerGone.Error()},
		"and a backend with attach lets its job go": {job: "stubborn", attach: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			closed, seen := filepath.Join(dir, "closed"), filepath.Join(dir, "seen")
			raw := options(t, oddOptions{Closed: closed, Seen: seen, Attach: c.attach})
			host := exec.CommandContext(t.Context(), "/proc/self/exe")
			host.Env = append(os.Environ(), hostEnv+"="+string(raw), hostEnv+"_DIR="+runDir(t), hostEnv+"_JOB="+c.job)
			host.Stderr = os.Stderr
			out, err := host.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := host.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			process := awaittest.Observe(t, pid)
			if err := host.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = host.Wait() // killed
			process.Gone(t)
			if _, err := os.Stat(closed); err != nil {
				t.Errorf("the backend was not closed: %v", err)
			}
			if got, _ := os.ReadFile(seen); string(got) != c.seen {
				t.Errorf("the run saw %q", got)
			}
		})
	}
}
