package cmd

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
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
