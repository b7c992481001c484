package backendtest_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func inputSaboteurs() []saboteur {
	var before memoryOfRuns
	return []saboteur{
		{
			does: "prefers __main__.py", breaks: []string{"BE-02"},
			hook: changeTar(func(h *tar.Header, seen map[string]bool) *tar.Header {
				if seen[h.Name] = true; h.Name == "main.py" && seen["__main__.py"] {
					return nil
				}
				return h
			}),
		},
		{
			does: "names another entrypoint than the one that runs", breaks: []string{"BE-18"},
			hook: changeOutput(func(s executor.Sink, out executor.Output) error {
				out.Data = bytes.ReplaceAll(out.Data, []byte("z/zz.py runs"), []byte("a/aa.py runs"))
				return say(s, out)
			}),
		},
		{
			does: "chooses although an entrypoint is named", breaks: []string{"BE-18"},
			hook: changeJob(func(job *executor.Job) {
				if job.Spec.Entrypoint == "z/zz.py" {
					job.Spec.Entrypoint = ""
				}
			}),
		},
		{
			does: "runs code as prog.py", breaks: []string{"BE-02", "BE-03"},
			hook: changeOutput(func(s executor.Sink, out executor.Output) error {
				out.Data = bytes.ReplaceAll(out.Data, []byte("main.py\n"), []byte("prog.py\n"))
				return say(s, out)
			}),
		},
		{
			does: "does not append Args to a command", breaks: []string{"BE-07"},
			hook: changeJob(func(job *executor.Job) {
				if len(job.Spec.Command) > 0 {
					job.Spec.Args = nil
				}
			}),
		},
		{
			does: "joins the arguments and splits them again", breaks: []string{"BE-07", "BE-14"},
			hook: changeJob(func(job *executor.Job) { job.Spec.Args = strings.Fields(strings.Join(job.Spec.Args, " ")) }),
		},
		{
			does: "cuts standard input at a megabyte less one", breaks: []string{"BE-10"},
			hook: changeJob(func(job *executor.Job) {
				if job.Stdin != nil {
					job.Stdin = &executor.Source{Open: limited(job.Stdin)}
				}
			}),
		},
		{
			does: "leaves a newline where there is no standard input", breaks: []string{"BE-11"},
			hook: changeJob(func(job *executor.Job) {
				if job.Stdin == nil {
					job.Stdin = &executor.Source{Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("\n")), nil }}
				}
			}),
		},
		{
			does: "reads all of standard input first", breaks: []string{"BE-12", "BE-22", "BE-60", "BE-63", "BE-92"},
			hook: changeJob(func(job *executor.Job) {
				if stdin := job.Stdin; stdin != nil {
					job.Stdin = &executor.Source{Open: func() (io.ReadCloser, error) {
						r, err := stdin.Open()
						if err != nil {
							return nil, err
						}
						// Only its memory limit ends the endless read.
						data, err := io.ReadAll(io.LimitReader(r, 8<<20))
						if len(data) == 8<<20 {
							return nil, fmt.Errorf("standard input is too long")
						}
						return struct {
							io.Reader
							io.Closer
						}{bytes.NewReader(data), r}, err
					}}
				}
			}),
		},
		{
			does: "opens its sources twice", breaks: []string{"BE-92"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				result, err := run(ctx, job, sink)
				if job.Workspace != nil && result.Status == executor.StatusSucceeded {
					_, _ = job.Workspace.Open()
				}
				return result, err
			},
		},
		{
			does: "forgets the executable bit", breaks: []string{"BE-07", "BE-13"},
			hook: changeTar(func(h *tar.Header, _ map[string]bool) *tar.Header { h.Mode &^= 0o111; return h }),
		},
		{
			does: "leaks the host's environment", breaks: []string{"BE-15"},
			hook: changeJob(func(job *executor.Job) {
				env := map[string]string{}
				for _, pair := range os.Environ() {
					if name, value, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "PYEXEC_") {
						env[name] = value
					}
				}
				maps.Copy(env, job.Spec.Env)
				job.Spec.Env = env
			}),
		},
		{
			does: "puts temporary files into the work folder", breaks: []string{"BE-17"},
			hook: changeJob(func(job *executor.Job) {
				if len(job.Spec.Env) == 0 {
					job.Spec.Env = map[string]string{"TMPDIR": "/work/tmp"}
				}
			}),
		},
		{
			does: "forgets artifacts in sub-folders", breaks: []string{"BE-16"},
			hook: changeJob(func(job *executor.Job) {
				for i, glob := range job.Spec.Outputs {
					job.Spec.Outputs[i] = strings.ReplaceAll(glob, "**/", "")
				}
			}),
		},
		{
			does: "leaves out hostile entries without a word", breaks: []string{"BE-55"},
			hook: changeTar(func(h *tar.Header, _ map[string]bool) *tar.Header {
				if strings.Contains(h.Name, "..") || strings.HasPrefix(h.Name, "/") || h.Typeflag == tar.TypeFifo {
					return nil
				}
				return h
			}),
		},
		{
			does: "lets the first of duplicate names win", breaks: []string{"BE-57"},
			hook: changeTar(func(h *tar.Header, seen map[string]bool) *tar.Header {
				name := strings.TrimPrefix(h.Name, "./")
				if seen[name] {
					return nil
				}
				seen[name] = true
				return h
			}),
		},
		{
			does: "takes the files behind its sources away", breaks: []string{"BE-58"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				result, err := run(ctx, job, sink)
				if job.Workspace != nil && job.Workspace.Path != "" {
					err = errors.Join(err, os.Remove(job.Workspace.Path))
				}
				return result, err
			},
		},
		{
			does: "keeps the environment of the run before", breaks: []string{"BE-61"},
			hook: changeJob(before.environment),
		},
		{
			does: "keeps a requirement installed", breaks: []string{"BE-50"},
			hook: changeJob(before.requirements),
		},
		{
			does: "keeps a file of the run before", breaks: []string{"BE-61"},
			hook: changeJob(before.files),
		},
	}
}

// limited opens stdin and cuts it one byte short of a megabyte.
func limited(stdin *executor.Source) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		r, err := stdin.Open()
		if err != nil {
			return nil, err
		}
		return struct {
			io.Reader
			io.Closer
		}{io.LimitReader(r, 1<<20-1), r}, nil
	}
}

// memoryOfRuns is state that is shared by Executions, which a backend must not have.
type memoryOfRuns struct {
	mu   sync.Mutex
	env  map[string]string
	reqs string
	left bool
}

func (m *memoryOfRuns) environment(job *executor.Job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if job.Spec.Env["LEFT"] != "" {
		m.env = maps.Clone(job.Spec.Env)
	} else if len(job.Spec.Env) == 0 {
		job.Spec.Env = maps.Clone(m.env)
	}
}

func (m *memoryOfRuns) requirements(job *executor.Job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if strings.Contains(job.Spec.Requirements, "pyexec-probe") {
		m.reqs = job.Spec.Requirements
	} else if job.Spec.Requirements == "" && strings.HasPrefix(job.Spec.Code, "import") {
		job.Spec.Requirements = m.reqs
	}
}

func (m *memoryOfRuns) files(job *executor.Job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left && job.Workspace == nil && strings.Contains(job.Spec.Code, "\nls\n") {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		_ = w.WriteHeader(&tar.Header{Name: "left.txt", Typeflag: tar.TypeReg, Mode: 0o644})
		_ = w.Close()
		job.Workspace = &executor.Source{Open: func() (io.ReadCloser, error) { return io.NopCloser(&buf), nil }}
	}
	m.left = m.left || strings.Contains(job.Spec.Code, "left.txt")
}
