package engine

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/detect"
)

// searches reports whether the files of s may say what it requires.
func searches(s executor.Spec) bool {
	python := s.Language == executor.LanguageDefault || s.Language == executor.LanguagePython
	never := s.Detect != nil && !*s.Detect
	return python && !never && s.Session == "" && s.Script == "" && s.Interpreter != executor.InterpreterSystem
}

// looksInto reports whether req's Workspace is searched for requirements: now, because it can be read again (inHand), or when it is
// spooled. Only an explicit Detect asks for that. The requirements of the request, and those in Code, win over those of the Workspace.
func looksInto(req request) (inHand, spool bool) {
	asked := req.spec.Detect != nil && *req.spec.Detect && searches(req.spec)
	if !asked || req.in.Workspace == nil || req.spec.Requirements != "" || req.script.Dependencies != nil {
		return false, false
	}
	return req.in.Workspace.Replayable, !req.in.Workspace.Replayable
}

// detectCode takes the requirements from the block of metadata in spec.Code.
func detectCode(req *request, invalid *executor.Problems) {
	if req.spec.Code == "" || !searches(req.spec) {
		return
	}
	code, _ := executor.CutDisplaying(req.spec.Code) // the user's lines are counted
	script, ok, err := detect.ParseScript([]byte(code))
	switch {
	case !ok || req.spec.Requirements != "":
	case err != nil:
		invalid.Add("code", "%v", err)
	case script.RequiresPython != "" && !detect.ValidSpecifier(script.RequiresPython):
		invalid.Add("code", "script metadata: requires-python: %q is not a version specifier", clip(script.RequiresPython, 100))
	case len(script.Requirements()) > maxRequirements:
		invalid.Add("code", "script metadata: dependencies: must be at most %d bytes", maxRequirements)
	default:
		req.script, req.requires = script, script.RequiresPython
		req.spec.Requirements = script.Requirements()
	}
}

// chooseVersion chooses the newest Python at hand that satisfies what the program's metadata requires, else the newest that can be installed.
func chooseVersion(req *request, invalid *executor.Problems) {
	if req.requires == "" || req.spec.PythonVersion != "" || req.spec.Image != "" {
		return
	}
	versions := req.info.Capabilities.Pythons()
	version := detect.SelectVersion(req.requires, versions)
	if version == "" && len(versions) > 0 {
		invalid.Add("python_version", "must satisfy the program, which requires Python %s (backend %s has %s)",
			clip(req.requires, 100), req.backend, pythonsOf(req.info.Capabilities))
	}
	req.spec.PythonVersion = version
}

// detectSpooled looks into a Workspace in Blobs.
func (e *Engine) detectSpooled(ctx context.Context, req *request, key string) (refused *executor.Failure, err error) {
	src, err := e.blobs.Open(ctx, key)
	if err != nil {
		return nil, e.internal("read "+key, err)
	}
	return e.detect(req, src)
}

// detect takes the requirements from the files of a Workspace. refused is the Failure if they are wrong.
func (e *Engine) detect(req *request, src *executor.Source) (refused *executor.Failure, err error) {
	r, err := src.Open()
	if err != nil {
		return nil, inputError(fieldTar, err)
	}
	found, err := calls.Guard(func() (detect.Found, error) {
		return detect.Tar(r, detect.Ask{
			Entrypoint:   req.spec.Entrypoint,
			NoEntrypoint: req.spec.Code != "" || len(req.spec.Command) > 0,
		})
	})
	_ = r.Close() // it was only read
	if wrong, ok := errors.AsType[*detect.Error](err); ok {
		return refusal(wrong.Error()), nil
	}
	if err != nil {
		// The backend refuses a broken tar, and names the bad entry.
		return nil, nil
	}
	if len(found.Requirements) > maxRequirements || !utf8.ValidString(found.Requirements) || strings.ContainsRune(found.Requirements, 0) {
		return refusal("requirements: must be a text of at most 1 MiB"), nil
	}
	req.spec.Requirements = found.Requirements
	if req.requires == "" {
		req.requires = found.PythonVersion
	}
	return nil, e.offered(req)
}

func refusal(message string) *executor.Failure {
	return &executor.Failure{
		Code: executor.Invalid, Phase: executor.PhasePrepare, Field: fieldTar,
		Message: strings.ToValidUTF8(clip(message, maxFailure), "\uFFFD"),
	}
}
