package backendtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/python-executor/python-executor/core/executor"
)

func abuseDirectoryRules() []rule {
	return []rule{
		{"BE-230", "abuse: a host_directory that a link has replaced since it was checked is refused as invalid, and nothing starts", abuseExchanged},
	}
}

// hostTree makes above/dir and other/dir, which everybody may write to, in a folder of the host. It returns the first, and other.
func hostTree(c *Case) (dir, other string) {
	base, err := os.MkdirTemp("", "pyexec-law-")
	if err == nil {
		base, err = filepath.EvalSymlinks(base) // an engine resolves links
	}
	if err != nil {
		c.Fatalf("temporary folder: %v", err)
	}
	c.Cleanup(func() { _ = os.RemoveAll(base) }) // best effort
	dir, other = filepath.Join(base, "above", "dir"), filepath.Join(base, "other")
	for _, made := range []string{base, filepath.Dir(dir), dir, other, filepath.Join(other, "dir")} {
		if err := errors.Join(os.MkdirAll(made, 0o777), os.Chmod(made, 0o777)); err != nil { // the program's user is another one
			c.Fatalf("folder: %v", err)
		}
	}
	return dir, other
}

// trusted runs a job for a caller who may use every folder of the host.
func trusted(c *Case, job executor.Job) *running {
	p := executor.Principal{Owner: job.Owner, Scopes: []executor.Scope{executor.ScopeExec, executor.ScopeTrusted}}
	return c.begin(job, func(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
		return c.suite.backend.Run(executor.WithPrincipal(ctx, p), job, sink)
	}).wait()
}

// abuseExchanged is a user of the host who may rename in a folder above the directory, or the directory itself. The engine has checked the
// path that the backend gets, and found no link in it.
func abuseExchanged(c *Case) {
	if !c.caps().HostDirectories {
		return // refused, as the walk over Spec checks
	}
	dir, other := hostTree(c)
	job := c.job(helloProgram)
	job.Spec.HostDirectory = dir
	for _, at := range []string{filepath.Dir(dir), dir} {
		if err := errors.Join(os.Rename(at, at+"-before"), os.Symlink(other, at)); err != nil {
			c.Fatalf("exchange %s: %v", at, err)
		}
		r := trusted(c, again(c, job))
		f := r.result.Failure
		refused := executor.CodeOf(r.err) == executor.Invalid || r.err == nil && f != nil && f.Code == executor.Invalid && f.Field == "host_directory"
		if r.hasStarted() || !refused {
			c.Errorf("%s is a link: %s, error %v; want code invalid, field host_directory, and no program", at, r.verdict(), r.err)
		}
		if err := errors.Join(os.Remove(at), os.Rename(at+"-before", at)); err != nil {
			c.Fatalf("exchange %s: %v", at, err)
		}
	}
	trusted(c, again(c, job)).succeeded()
}
