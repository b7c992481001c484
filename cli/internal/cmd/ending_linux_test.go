package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/python-executor/python-executor/cli/internal/stop"
)

func TestTheEngineInsideCutsOnlyWhatItCollects(t *testing.T) {
	bundle := withFake(t)
	text := "backend: fake\nbackends: {fake: {}}\nlimits: {default: {output_bytes: 100}}\n"
	if err := os.WriteFile(os.Getenv("PYEXEC_CONFIG"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if o := execute(t, t.Context(), bundle, "flood stdout 10KB", "run"); o.status != 0 || len(o.stdout) != 10<<10 {
		t.Errorf("status %d with %d bytes: %s", o.status, len(o.stdout), o.stderr)
	}
	o := execute(t, t.Context(), bundle, "flood stdout 10KB", "run", "--json")
	var r struct {
		Stdout    string `json:"stdout"`
		Truncated bool   `json:"stdout_truncated"`
	}
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil || len(r.Stdout) != 100 || !r.Truncated {
		t.Errorf("%d bytes, truncated %t, %v", len(r.Stdout), r.Truncated, err)
	}
}

func TestAnAnswerThatCameBeforeCtrlCStands(t *testing.T) {
	bundle := withFake(t)
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("no: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(interrupted{syscall.SIGINT})
	if o := execute(t, ctx, bundle, "", "config", "check", "--json", "--config", bad); o.status != 1 {
		t.Errorf("%+v", o)
	}
}

func TestWithJSONCtrlCPrintsTheResultOfWhatItHasEnded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		v    viewer
		svc  *stub
		want string
	}{
		{"run", viewer{live: true, kill: true}, &stub{output: "x"}, "exe_1 killed x"},
		{"follow, which ends nothing", viewer{live: true}, &stub{output: "x"}, ""},
		{"run, and its events do not end", viewer{live: true, kill: true}, &stub{output: "x", stuck: true}, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			c.svc.ended = make(chan struct{})
			ctx, requests := stop.New(t.Context())
			var out, errs bytes.Buffer
			c.v.g = &global{IO: IO{Out: &out, Err: &errs}, json: true}
			requests.First(interrupted{syscall.SIGINT})
			if err := c.v.view(&target{Service: c.svc, ctx: ctx}, "exe_1", newProgress(c.v.g)); !errors.Is(err, interrupted{syscall.SIGINT}) {
				t.Errorf("%s: %v", c.name, err)
			}
			var r struct {
				ID     string `json:"execution_id"`
				Status string `json:"status"`
				Stdout string `json:"stdout"`
			}
			got := ""
			if out.Len() > 0 {
				err := json.Unmarshal(out.Bytes(), &r)
				if got = fmt.Sprint(r.ID, " ", r.Status, " ", r.Stdout); err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
			}
			if got != c.want || errs.Len() > 0 {
				t.Errorf("%s: %q, want %q: %s", c.name, got, c.want, errs.String())
			}
		})
	}
}
