package jobs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/plugins/backend-docker/imagename"
)

func TestAJobIsRefusedByItsFields(t *testing.T) {
	t.Parallel()
	b := &Backend{config: Default()}
	const enough = minMemory
	for name, c := range map[string]struct {
		commands []string
		memory   int64
		field    string
	}{
		"all at their bounds":   {append(make([]string, maxCommands-1), strings.Repeat("x", maxCommandBytes)), enough, ""},
		"a byte of memory less": {nil, enough - 1, memoryField},
		"a command too many":    {make([]string, maxCommands+1), enough, "pre_commands"},
		"a byte too many":       {[]string{"x", strings.Repeat("x", maxCommandBytes)}, enough, "pre_commands"},
		"a NUL":                 {[]string{"true", "echo \x00"}, enough, "pre_commands[1]"},
	} {
		err := b.refuse(executor.Job{Spec: executor.Spec{Code: "1", PreCommands: c.commands}, Limits: executor.Limits{MemoryBytes: c.memory}})
		e, _ := errors.AsType[*executor.Error](err)
		if c.field == "" && err != nil || c.field != "" && (e == nil || e.Code != executor.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != c.field) {
			t.Errorf("%s: %v, want the field %q", name, err, c.field)
		}
	}
}

func TestALimitOfTheDiskIsRefusedWhereNothingBoundsIt(t *testing.T) {
	t.Parallel()
	for work, refused := range map[string]bool{WorkOnDisk: true, WorkInMemory: false} {
		b := &Backend{config: Default()}
		b.config.Work = work
		limits := executor.Limits{MemoryBytes: minMemory, DiskBytes: 1 << 30}
		err := b.refuse(executor.Job{Spec: executor.Spec{Code: "1", Limits: limits}, Limits: limits})
		if got := err != nil && strings.Contains(err.Error(), "config.disk_mb: nothing bounds the disk of a job: set job.work of this backend to memory"); got != refused || (err != nil) != refused {
			t.Errorf("%s: %v", work, err)
		}
	}
}

func TestTheImageOfAJobIsOnTheListAndHasItsPython(t *testing.T) {
	t.Parallel()
	b := &Backend{config: Default()}
	var err error
	if b.images, err = imagename.NewAllowList(b.config.Images, b.config.DefaultImage, "images"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		image, python, want string
		code                executor.Code
	}{
		{"", "", "python:3.12-slim", ""}, {"", "3.11", "python:3.11-slim", ""}, {"docker.io/library/python:3.9", "", "python:3.9", ""},
		{"python:3.9", "3.11", "", executor.Invalid}, {"alpine", "", "", executor.Denied},
	} {
		got, err := b.image(t.Context(), executor.Spec{Image: c.image, PythonVersion: c.python})
		if got != c.want || executor.CodeOf(err) != c.code {
			t.Errorf("%q with Python %q: %q, %v", c.image, c.python, got, err)
		}
	}
}

func TestOnlyAStoppedFloodIsTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const grace = 3 * time.Second
		for _, c := range []struct {
			stopped bool
			output  int64
			want    bool
		}{{true, -1, true}, {true, 0, false}, {true, 1 << 20, false}, {false, -1, false}} {
			stopping := make(chan struct{})
			if c.stopped {
				close(stopping)
			}
			x := &execution{stopping: stopping, job: executor.Job{Limits: executor.Limits{OutputBytes: c.output, KillGrace: grace}}}
			if x.tooLate() {
				t.Errorf("%+v: too late at once", c)
			}
			time.Sleep(grace + drainTime)
			if x.tooLate() {
				t.Errorf("%+v: too late before the end of its time", c)
			}
			time.Sleep(time.Nanosecond)
			if x.tooLate() != c.want {
				t.Errorf("%+v: too late is %v", c, !c.want)
			}
		}
	})
}

// TestARequestIsTriedAgainMoreSlowly also checks that a pause ends with its ctx.
func TestARequestIsTriedAgainMoreSlowly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for attempt, want := range map[int]time.Duration{0: minPause, 1: 2 * minPause, 5: 32 * minPause, 6: maxPause, 70: maxPause} {
			began := time.Now()
			if err := backoff(t.Context(), attempt); err != nil || time.Since(began) != want {
				t.Errorf("attempt %d: %s, %v", attempt, time.Since(began), err)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("over")
		cancel(cause)
		if err := backoff(ctx, 70); !errors.Is(err, cause) {
			t.Error(err)
		}
	})
}

func TestTheEndOfARequestIsPartOfItsError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	n := &cluster{pause: func(context.Context, int) error { cancel(nil); return errors.New("over") }}
	away := errors.New("connection refused")
	if err := n.retry(ctx, func(context.Context) error { return away }); !errors.Is(err, away) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestWhatNomadAnswersToAJob covers the job itself, one that exists, and a missing right.
func TestWhatNomadAnswersToAJob(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		body   string
		exists bool
		says   string // the error as a refusal
	}{
		"it is made":        {status: http.StatusOK, body: `{"JobModifyIndex": 7, "EvalID": "e"}`},
		"it exists":         {status: http.StatusInternalServerError, body: "Enforcing job modify index 0: job already exists", exists: true},
		"no right":          {status: http.StatusForbidden, body: "Permission denied", says: "make: Nomad's ACL does not allow it; see deploy/nomad for the rights: Permission denied"},
		"an unknown token":  {status: http.StatusUnauthorized, body: "no", says: "make: Nomad's ACL does not allow it; see deploy/nomad for the rights: no"},
		"it makes no sense": {status: http.StatusBadRequest, body: "bad", says: "make: Nomad answered 400: bad"},
	} {
		n := clusterOf(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = fmt.Fprint(w, c.body)
		}))
		index, eval, err := n.register(t.Context(), api.NewBatchJob("x", "x", "", 50))
		switch {
		case c.exists:
			if !errors.Is(err, errExists) {
				t.Errorf("%s: %v", name, err)
			}
		case c.says != "":
			if err := refusal("make", err); err.Error() != c.says || executor.CodeOf(err) != executor.Unavailable {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil || index != 7 || eval != "e":
			t.Errorf("%s: %d %q, %v", name, index, eval, err)
		}
	}
}
