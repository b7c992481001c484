package dockerbackend

import (
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/plugins/backend-docker/imagename"
)

func TestAnInterpreterWaitsInAWarmContainer(t *testing.T) {
	t.Parallel()
	b := openBackend(t, map[string]any{"pool": map[string]any{"min_idle": 1, "sessions": 0}})
	run := func(code string) executor.StartKind {
		var j journal
		x := job(executor.Spec{Code: code, Args: []string{"a"}})
		r, err := b.Run(t.Context(), x, &j)
		if err != nil || r.Status != executor.StatusSucceeded || j.stdout.String() != "['main.py', 'a'] 1\n" || r.PeakMemoryBytes < 1<<20 || r.CPU <= 0 {
			t.Fatalf("%v; %+v %+v; %q %q", err, r, r.Failure, j.stdout.String(), j.stderr.String())
		}
		if err := b.Remove(t.Context(), x.ID); err != nil {
			t.Error(err)
		}
		return j.started.Start
	}
	const program = "import os, sys; print(sys.argv, os.getppid())"
	awaittest.Until(t, "an interpreter that waits", func() bool { return run(program) == executor.StartFork })
	if how := run(program + "; import gc"); how != executor.StartExec {
		t.Errorf("a program that looks into its interpreter is started by %s", how)
	}
}

func TestOnlyAnImageOfTheOperatorStartsAnInterpreterAhead(t *testing.T) {
	known := runner.Interpreter{Path: "/usr/bin/python3"}
	for name, c := range map[string]struct {
		image  imageInfo
		python runner.Interpreter
		class  class
		want   bool
	}{
		"the default image":            {imageInfo{Ahead: true, Path: "/bin"}, known, class{}, true},
		"an image of somebody":         {imageInfo{Path: "/bin"}, known, class{}, false},
		"an image without Python":      {imageInfo{Ahead: true, Path: "/bin"}, runner.Interpreter{}, class{}, false},
		"a session has one of its own": {imageInfo{Ahead: true, Path: "/bin"}, known, class{Session: true}, true},
	} {
		f := &factory{
			image:       func(string) imageInfo { return c.image },
			interpreter: func(imageInfo) (runner.Interpreter, bool) { return c.python, true },
		}
		got := f.ahead(c.class)
		if (got != nil) != c.want || got != nil && *got != (runner.Ahead{Interpreter: known.Path, Path: "/bin", Session: c.class.Session}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	i := &images{defaultImage: "docker.io/library/python", seen: map[string]seenImage{}, handed: map[string]imageInfo{}}
	for name, want := range map[string]bool{"python:3.12": true, "python:3.9-slim": true, "other/python:3.12": false} {
		r, err := imagename.ParseRef(name)
		if err != nil {
			t.Fatal(err)
		}
		if i.hand(r, imageFacts{ID: name}); i.returned(name).Ahead != want {
			t.Errorf("%s: %+v", name, i.returned(name))
		}
	}
}
