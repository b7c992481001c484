package host_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/core/host"
)

// diary is a frontend that writes what happens to it into a FIFO.
type diary struct {
	File string `json:"file"`
	// Ends: it ends by itself at once.
	Ends   bool   `json:"ends"`
	Refuse bool   `json:"refuse"`
	Page   string `json:"page"` // its detail of that name; "": "one"
}

func newDiary(_ context.Context, c plugin.Configure) (executor.Frontend, map[string]string, error) {
	var d diary
	if err := json.Unmarshal(c.Options, &d); err != nil {
		return nil, nil, err
	}
	if d.Refuse {
		return nil, nil, executor.FieldErrorf(executor.Invalid, c.Name+".refuse", "is set")
	}
	f, err := os.OpenFile(d.File, os.O_WRONLY, 0)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, svc executor.Service) error {
		x, err := svc.Get(ctx, "exe_1")
		fmt.Fprintln(f, "serves", os.Getpid(), x.ID, executor.CodeOf(err))
		if d.Ends {
			return nil
		}
		<-ctx.Done()
		fmt.Fprintln(f, "drains", os.Getpid())
		return nil
	}, map[string]string{"page": cmp.Or(d.Page, "one")}, nil
}

type oneExecution struct{ executor.Service }

func (oneExecution) Get(_ context.Context, id string) (executor.Execution, error) {
	return executor.Execution{ID: id}, nil
}

// startDiary starts one and returns what reads it.
func startDiary(t *testing.T, d diary, restart bool, more ...func(*host.FrontendOptions)) (*host.Frontend, *bufio.Reader, error) {
	t.Helper()
	d.File = filepath.Join(t.TempDir(), "diary")
	if err := syscall.Mkfifo(d.File, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(d.File, os.O_RDWR, 0) // no end while writers come and go
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() })
	options, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	path, args, err := plugintest.Command("diary")
	if err != nil {
		t.Fatal(err)
	}
	o := host.FrontendOptions{Name: "diary", Path: path, Args: args, Options: options, Restart: restart}
	for _, set := range more {
		set(&o)
	}
	f, err := host.StartFrontend(t.Context(), o, oneExecution{})
	if f != nil {
		t.Cleanup(func() {
			if err := f.Close(context.Background()); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	return f, bufio.NewReader(reader), err
}

// entry reads one line of the diary: a verb and a process number.
func entry(t *testing.T, r *bufio.Reader, verb string) (pid int) {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(line)
	if len(fields) < 2 || fields[0] != verb {
		t.Fatalf("the diary says %q, not that it %s", line, verb)
	}
	if verb == "serves" && (len(fields) != 3 || fields[2] != "exe_1") {
		t.Errorf("the diary says %q", line)
	}
	pid, err = strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestAKilledFrontendIsStartedAgain(t *testing.T) {
	t.Parallel()
	f, r, err := startDiary(t, diary{}, true)
	if err != nil {
		t.Fatal(err)
	}
	first := entry(t, r, "serves")
	if first == os.Getpid() {
		t.Error("it runs in our own process")
	}
	if f.Details()["page"] != "one" {
		t.Errorf("details: %v", f.Details())
	}
	kill(t, first)
	second := entry(t, r, "serves")
	if second == first {
		t.Error("the same process serves again")
	}
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := entry(t, r, "drains"); got != second {
		t.Errorf("%d drained, not %d", got, second)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

func TestTheFirstProcessOfAFrontendMayHaveItsOwnOptions(t *testing.T) {
	t.Parallel()
	f, r, err := startDiary(t, diary{}, true, func(o *host.FrontendOptions) {
		var d diary
		if err := json.Unmarshal(o.Options, &d); err != nil {
			t.Fatal(err)
		}
		d.Page = "first"
		var err error
		if o.FirstOptions, err = json.Marshal(d); err != nil {
			t.Fatal(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"first", "one", "one"} {
		pid := entry(t, r, "serves")
		if got := f.Await(t.Context())["page"]; got != want {
			t.Errorf("the page is %q, want %q", got, want)
		}
		kill(t, pid)
	}
}

func TestAFrontendWithoutRestartIsDoneWhenItEnds(t *testing.T) {
	t.Parallel()
	f, r, err := startDiary(t, diary{Ends: true}, false)
	if err != nil {
		t.Fatal(err)
	}
	entry(t, r, "serves")
	awaittest.Closed(t, "its end", f.Done())
	if f.Err() != nil {
		t.Errorf("ended with %v", f.Err())
	}
}

func TestAFrontendThatRefusesItsOptionsDoesNotStart(t *testing.T) {
	t.Parallel()
	_, _, err := startDiary(t, diary{Refuse: true}, true)
	if executor.CodeOf(err) != executor.Invalid || !strings.Contains(err.Error(), "is set") {
		t.Errorf("got %v", err)
	}
}

func inBackground(o *host.FrontendOptions) { o.Background = true }

func TestAFrontendStartsInTheBackground(t *testing.T) {
	t.Parallel()
	f, r, err := startDiary(t, diary{}, true, inBackground)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Await(t.Context()); got["page"] != "one" {
		t.Fatalf("details %v", got)
	}
	pid := entry(t, r, "serves")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if again := entry(t, r, "serves"); again == pid || f.Await(t.Context())["page"] != "one" {
		t.Error("there is no next process")
	}
}

func TestAFrontendThatDoesNotStartInTheBackgroundCanBeClosed(t *testing.T) {
	t.Parallel()
	f, _, err := startDiary(t, diary{Refuse: true}, true, inBackground)
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancelCause(t.Context())
	end(nil)
	if got := f.Await(ended); got != nil {
		t.Errorf("details %v", got)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := f.Await(t.Context()); got != nil {
		t.Errorf("after Close: details %v", got)
	}
}
