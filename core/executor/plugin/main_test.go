package plugin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// hostEnv makes this binary a host that can be killed: see TestTheDeathOfTheHost….
const hostEnv = "PLUGIN_TEST_HOST"

func TestMain(m *testing.M) {
	plugin.BePatient()
	if plugin.Requested() && len(os.Args) == 3 && os.Args[2] == "lines" {
		plugin.ServeFrontend("lines", "test", newLines)
		os.Exit(0)
	}
	plugintest.Main(map[string]plugin.Factory{"odd": newOdd})
	if options := os.Getenv(hostEnv); options != "" {
		beHost(options)
	}
	leaktest.Main(m)
}

// oddOptions say how the odd backend is made.
type oddOptions struct {
	// Make: invalid, panic, exit, hang, hang-hard, nothing, no-info.
	Make string `json:"make"`
	// Closed is a file that Close writes. Seen is one to which a Run writes how its ctx ended, and which is there before making hangs.
	Closed string `json:"closed"`
	Seen   string `json:"seen"`
	Attach bool   `json:"attach"`
	// LocalPath: it shares our files.
	LocalPath bool `json:"local_path"`
}

// odd is a backend whose jobs look at their process and abuse it.
type odd struct {
	c       plugin.Configure
	options oddOptions
}

func newOdd(ctx context.Context, c plugin.Configure) (executor.Backend, error) {
	var o oddOptions
	if err := json.Unmarshal(c.Options, &o); err != nil {
		return nil, err
	}
	if strings.HasPrefix(o.Make, "hang") {
		if err := os.WriteFile(o.Seen, nil, 0o600); err != nil {
			return nil, err
		}
	}
	switch o.Make {
	case "invalid":
		if _, err := syscall.Write(2, []byte("chatter\n")); err != nil {
			return nil, err
		}
		return nil, executor.FieldErrorf(executor.Invalid, "backends."+c.Name+".make", "not like this")
	case "untyped":
		return nil, errors.New("no idea")
	case "panic":
		panic("factory")
	case "exit":
		fmt.Fprintln(os.NewFile(2, "stderr"), "cannot go on")
		os.Exit(4)
	case "hang":
		<-ctx.Done()
		return nil, ctx.Err()
	case "hang-hard":
		select {}
	case "nothing":
		return nil, nil
	}
	return &odd{c, o}, nil
}

func (b *odd) Info(context.Context) (executor.Info, error) {
	if b.options.Make == "no-info" {
		return executor.Info{}, executor.Errorf(executor.Unavailable, "no info")
	}
	return executor.Info{
		Healthy:      true,
		Capabilities: executor.Capabilities{Attach: b.options.Attach, LocalPath: b.options.LocalPath},
		Details: map[string]string{
			"configured": fmt.Sprintf("%s %s %t %s", b.c.Name, b.c.Instance, b.c.Embedded, b.c.DataDir),
		},
	}, nil
}

// Run emits what the job's Code asks for as one Output.
func (b *odd) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	say := func(text string) error {
		return sink.Emit(executor.Event{Body: executor.Output{Stream: executor.Stdout, Data: []byte(text)}})
	}
	var err error
	switch job.Spec.Code {
	case "environment":
		err = say(strings.Join(os.Environ(), "\n"))
	case "descriptors":
		err = say(descriptors())
	case "one":
		err = say("x")
	case "events":
		for range job.Attempt {
			err = errors.Join(err, say("x"))
		}
	case "flood":
		chunk := strings.Repeat("x", 256<<10)
		for range job.Attempt {
			err = errors.Join(err, say(chunk))
		}
	case "exit":
		os.Exit(5)
	case "signals":
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE} {
			err = errors.Join(err, syscall.Kill(os.Getpid(), s))
		}
		var status []byte
		if status, err = exec.CommandContext(ctx, "grep", "SigIgn", "/proc/self/status").Output(); err == nil {
			err = say(string(status))
		}
	case "log":
		b.c.Log.Warn("a warning", "answer", 42)
		for _, line := range []string{`{"@message":5}`, `{"@level":[]}`, `{"@timestamp":{}}`, `{"level":"INFO"}`, "\xff\x00", strings.Repeat("x", 200_000)} {
			if _, err := fmt.Fprintln(os.NewFile(2, "stderr"), line); err != nil {
				return executor.Result{}, err
			}
		}
		fmt.Println("to the variable stdout")
		b.c.Log.Info("the last line")
	case "read":
		var r io.ReadCloser
		if r, err = job.Workspace.Open(); err == nil {
			var n int64
			n, err = io.Copy(io.Discard, r)
			err = errors.Join(err, r.Close(), say(fmt.Sprint(n)))
		}
	case "wait":
		_ = say("waiting") // its acknowledgement may not come any more: the host is killed as soon as it has this
		<-ctx.Done()
		if b.options.Seen != "" {
			err = os.WriteFile(b.options.Seen, []byte(context.Cause(ctx).Error()), 0o600)
		}
		return executor.Result{Status: executor.StatusKilled}, err
	case "escape":
		c := exec.Command("sleep", "300") //nolint:noctx // it outlives the plugin
		c.Stderr = os.NewFile(2, "stderr")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err = c.Start(); err == nil {
			err = say(fmt.Sprint(c.Process.Pid))
		}
	case "child":
		c := exec.Command("sleep", "300") //nolint:noctx // it is to end with the plugin
		if err = c.Start(); err == nil {
			err = say(fmt.Sprint(c.Process.Pid))
		}
	case "stubborn":
		_ = say("waiting")
		select {}
	}
	return executor.Result{Status: executor.StatusSucceeded}, err
}

func (b *odd) Attach(context.Context, executor.Job, executor.Resume, executor.Sink) (executor.Result, error) {
	return executor.Result{}, executor.Errorf(executor.NotFound, "nothing")
}

func (b *odd) Remove(context.Context, string) error { return nil }

// Close implements io.Closer.
func (b *odd) Close() error {
	if b.options.Closed == "" {
		return nil
	}
	return os.WriteFile(b.options.Closed, []byte("closed"), 0o600)
}

func descriptors() string {
	var all []string
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err.Error()
	}
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			all = append(all, e.Name()+" "+target)
		}
	}
	return strings.Join(all, "\n")
}

// sink passes on the first text and keeps all of it.
type sink struct {
	executor.Sink
	first chan string
	text  strings.Builder
}

func newSink() *sink { return &sink{first: make(chan string, 1)} }

func (s *sink) Emit(e executor.Event) error {
	if o, ok := e.Body.(executor.Output); ok {
		s.text.Write(o.Data)
		select {
		case s.first <- string(o.Data):
		default:
		}
	}
	return nil
}

func job(code string) executor.Job {
	return executor.Job{ID: "exe_1", Spec: executor.Spec{Code: code}, Limits: executor.Limits{KillGrace: time.Second}}
}

func options(t testing.TB, o oddOptions) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// runDir is a folder whose path leaves room for a socket's name; t.TempDir() has the test's name in it.
func runDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
