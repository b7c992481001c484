package scripts

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

func TestTheAuditSaysHowAScriptEnded(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.policy.MaxLineBytes, p.policy.MaxOutputBytes = 3, 10
	b := p.backend()
	for _, c := range []struct {
		text      string
		result    string
		signal    string
		exitCode  int
		truncated bool
	}{
		{"true", "succeeded", "", 0, false},
		{"exit 3", "failed", "", 3, false},
		{"kill -TERM $$", "failed", "TERM", -15, false},
		{"echo long", "succeeded", "", 0, true},
		{"echo long >&2", "succeeded", "", 0, true},
		{"yes | head -n 20", "succeeded", "", 0, true},
		{"yes | head -n 20 >&2", "succeeded", "", 0, true},
	} {
		path := filepath.Join(p.root, "run.sh")
		if b.policy.Allowed = []string{path}; os.WriteFile(path, []byte("#!/bin/sh\n"+c.text+"\n"), 0o700) != nil { //nolint:gosec // it is executed
			t.Fatal("the script cannot be written")
		}
		j := job(path)
		j.ID += "-audit"
		began := time.Now().UnixMilli()
		if _, err := b.Run(executor.WithTool(t.Context(), "run_script_stream"), j, newJournal()); err != nil {
			t.Fatal(err)
		}
		maxMillis := time.Now().UnixMilli() - began + 1
		lines := p.audit()
		last := lines[len(lines)-1]
		if last.Tool != "run_script_stream" {
			t.Errorf("%s: the audit has the tool %q", c.text, last.Tool)
		}
		if last.ExitCode == nil || *last.ExitCode != c.exitCode {
			t.Errorf("%s: the audit has the exit code %v, want %d", c.text, last.ExitCode, c.exitCode)
		}
		if last.Result != c.result || last.Signal != c.signal || last.Truncated != c.truncated || last.Args == nil || last.ExecutionID != j.ID || last.DurationMS < 1 || last.DurationMS > maxMillis {
			t.Errorf("%s: the audit says %+v", c.text, last)
		}
	}
	// Others may not read what was run, with which arguments, and what it wrote.
	err := filepath.WalkDir(p.logs, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAnAuditLogThatIsFoundIsCountedAndItsFilesStayInItsFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "logs")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, auditName), make([]byte, maxAuditBytes), 0o600)); err != nil {
		t.Fatal(err)
	}
	a, err := openAudit(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.write(auditLine{}); err != nil {
		t.Fatal(err)
	}
	if old, err := os.Stat(filepath.Join(dir, auditName+".1")); err != nil || old.Size() != maxAuditBytes {
		t.Errorf("the full log of before was not rotated: %v, %v", old, err)
	}
	log, err := a.begin("x/../../exe_1")
	if err != nil {
		t.Fatal(err)
	}
	name, err := log.end()
	if err = errors.Join(err, a.close()); err != nil || filepath.Dir(name) != dir {
		t.Errorf("the log of a run is %s, %v", name, err)
	}
}

func TestTheListOfScriptsIsACopy(t *testing.T) {
	t.Parallel()
	b, err := New(Options{Policy: config.Scripts{Allowed: []string{"/a"}, Args: []string{"-v"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	list, err := b.Scripts(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	list[0].AllowedArgs[0] = "--rm"
	if b.policy.Args[0] != "-v" {
		t.Error("who lists the scripts can change the policy")
	}
}

func TestTheRunnerGetsNoneOfTheServersVariables(t *testing.T) {
	t.Setenv("SCRIPTS_TEST_SECRET", "leaked")
	p := newPlace(t)
	path := p.script("parent.sh", `tr '\0' '\n' < /proc/$PPID/environ`)
	sink := newJournal()
	if res, err := p.backend().Run(t.Context(), job(path), sink); err != nil || res.Status != executor.StatusSucceeded || strings.Contains(sink.out[executor.Stdout], "leaked") {
		t.Errorf("%+v, %v: the runner has %q", res, err, sink.out[executor.Stdout])
	}
}
