package backendtest_test

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// letsThrough is a backend on which one attempt succeeds. The fake cannot make attempts, so it prints the result. The saboteur
// shows that the case reads that result. control_linux_test.go shows that real programs print it.
func letsThrough(id, attempt string) saboteur {
	return says("lets a program have "+attempt, id, "print "+attempt+": refused: by the fake\n", "print "+attempt+": got through: 1\n")
}

func abuseSaboteurs() []saboteur {
	return []saboteur{
		letsThrough("BE-200", "a file of the host"),
		letsThrough("BE-201", "a system folder"),
		letsThrough("BE-202", "mount a file system"),
		letsThrough("BE-203", "a setting of the kernel"),
		letsThrough("BE-204", "the machine's memory"),
		letsThrough("BE-205", "trace it"),
		letsThrough("BE-207", "a descriptor that nobody gave it"),
		letsThrough("BE-208", "to be root"),
		letsThrough("BE-209", "load a module"),
		letsThrough("BE-210", "enter another's"),
		letsThrough("BE-211", "add a key"),
		letsThrough("BE-212", "an environment"),
		letsThrough("BE-213", "raw IP"),
		letsThrough("BE-224", "a file in a folder for temporary files"),
		letsThrough("BE-211", "a key that the server's user left, by its name"),
		letsThrough("BE-211", "a key that an earlier program left, by asking"),
		letsThrough("BE-214", "a name"),
		letsThrough("BE-225", "a port of the host's loopback"),
		says("forgets what became of an attempt", "BE-213", "print raw IP: refused: by the fake\n", ""),
		says("lets 200 processes run where 48 may", "BE-215", "fork 200\nprint up\n", "print forked\nprint up\n"),
		says("lets a program fill what is not its own", "BE-217", "fill-file big 256MB\n", ""),
		says("gives a program descriptors without end", "BE-219", "print EMFILE", "print through 1100000"),
		says("loses a workspace while descriptors are in flight", "BE-226", "cat given", ""),
		says("keeps a file outside as an artifact", "BE-222", "symlink /etc out/folder\n", "write-file out/folder root:x:0:0\n"),
		ends("believes a program that kills its runner", "BE-206", "print alive\nexit 7", func(r *executor.Result) {
			r.Status, r.ExitCode = executor.StatusSucceeded, new(int)
		}),
		ends("believes what a program says of its result", "BE-207", "hex stdout 000102037f", func(r *executor.Result) {
			r.Status, r.ExitCode = executor.StatusSucceeded, new(int)
		}),
		ends("kills a program for its many files", "BE-218", "print made 100000", func(r *executor.Result) { r.Status = executor.StatusKilled }),
		ends("counts a flood a byte short", "BE-220", "flood stdout 16MB\nflood stderr 16MB", func(r *executor.Result) { r.StderrBytes-- }),
		ends("waits for what hides", "BE-223", "spawn-grandchild hidden", func(r *executor.Result) { r.Wall += time.Hour }),
		{does: "follows a link in the place of a folder", breaks: []string{"BE-230"}, abuses: true, caps: func(c *executor.Capabilities) { c.HostDirectories = true }},
		{does: "lets a neighbour pay for a memory bomb", breaks: []string{"BE-216"}, abuses: true, hook: sharedMemory()},
		{
			does: "keeps files with holes beyond the disk limit", breaks: []string{"BE-227"}, abuses: true,
			hook: changeJob(func(job *executor.Job) {
				if strings.Contains(job.Spec.Code, "holes") {
					job.Limits.DiskBytes = 1 << 30
				}
			}),
		},
		{
			does: "sends artifacts beyond the budget", breaks: []string{"BE-227"}, abuses: true,
			hook: changeJob(func(job *executor.Job) { job.ArtifactBytes = 0 }),
		},
		{
			does: "swallows a tar bomb", breaks: []string{"BE-221"}, abuses: true,
			hook: changeJob(func(job *executor.Job) {
				if job.Limits.DiskBytes == 16<<20 {
					job.Workspace = nil
				}
			}),
		},
	}
}

// says is a backend whose program prints something else.
func says(does, id, from, to string) saboteur {
	return saboteur{does: does, breaks: []string{id}, abuses: true, hook: changeJob(func(job *executor.Job) {
		job.Spec.Code = strings.ReplaceAll(job.Spec.Code, from, to)
	})}
}

// ends is a backend that reports another end for the program with that beginning.
func ends(does, id, begins string, change func(*executor.Result)) saboteur {
	return saboteur{does: does, breaks: []string{id}, abuses: true, hook: changeResult(func(job executor.Job, r *executor.Result) {
		if strings.HasPrefix(job.Spec.Code, begins) {
			change(r)
		}
	})}
}

// sharedMemory is a backend whose Executions go wrong when another Execution uses too much memory.
func sharedMemory() fake.Hook {
	var bombed atomic.Bool
	return func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
		bomb := strings.Contains(job.Spec.Code, "alloc 512MB")
		if bomb {
			bombed.Store(true)
		}
		result, err := run(ctx, job, sink)
		if bombed.Load() && job.Spec.Env["OWN"] != "" {
			bombed.Store(false)
			code := 1
			result.Status, result.ExitCode = executor.StatusFailed, &code
		}
		return result, err
	}
}
