package engine

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/detect"
)

// searches reports whether req's own files may say what it requires.
func searches(s executor.Spec) bool {
	python := s.Language == executor.LanguageDefault || s.Language == executor.LanguagePython
	never := s.Detect != nil && !*s.Detect
	return python && !never && s.Session == "" && s.Script == "" && s.Interpreter != executor.InterpreterSystem
}

// looksInto says whether req's Workspace is to be looked into, which only an explicit Detect asks for: inHand, because it
// can be read again, else after it was spooled. The requirements of the request itself always win, so with them there is
// nothing to look for; so there is not where Code has said it.
func looksInto(req request) (inHand, spool bool) {
	asked := req.spec.Detect != nil && *req.spec.Detect && searches(req.spec)
	if !asked || req.in.Workspace == nil || req.spec.Requirements != "" || req.script.Dependencies != nil {
		return false, false
	}
	return req.in.Workspace.Replayable, !req.in.Workspace.Replayable
}

// detectCode reads the block of metadata in spec.Code.
func detectCode(req *request, invalid *problems) {
	if req.spec.Code == "" || !searches(req.spec) {
		return
	}
	script, ok, err := detect.ParseScript([]byte(req.spec.Code))
	switch {
	case !ok || req.spec.Requirements != "":
	case err != nil:
		invalid.add("code", "%v", err)
	case script.RequiresPython != "" && !detect.ValidSpecifier(script.RequiresPython):
		invalid.add("code", "script metadata: requires-python: %q is not a version specifier", clip(script.RequiresPython, 100))
	case len(script.Requirements()) > maxRequirements:
		invalid.add("code", "script metadata: dependencies: must be at most %d bytes", maxRequirements)
	default:
		req.script, req.requires = script, script.RequiresPython
		req.spec.Requirements = script.Requirements()
	}
}

// chooseVersion takes the best Python at hand that satisfies what the program's own metadata requires.
func chooseVersion(req *request, missing *problems) {
	if req.requires == "" || req.spec.PythonVersion != "" || req.spec.Image != "" {
		return
	}
	versions := req.info.Capabilities.PythonVersions
	version := detect.SelectVersion(req.requires, versions)
	if version == "" && len(versions) > 0 {
		missing.add("python_version", "the program requires Python %s, backend %s has %s",
			clip(req.requires, 100), req.backend, strings.Join(versions, ", "))
	}
	req.spec.PythonVersion = version
}

// detectInHand looks into a Workspace that can be read again. refused is what the caller's files ask for in vain.
func (e *Engine) detectInHand(req *request) (refused *executor.Failure, err error) {
	return e.detect(req, req.in.Workspace)
}

// detectSpooled looks into a Workspace that lies in Blobs.
func (e *Engine) detectSpooled(ctx context.Context, req *request, key string) (refused *executor.Failure, err error) {
	src, err := e.blobs.Open(ctx, key)
	if err != nil {
		return nil, e.internal("read "+key, err)
	}
	return e.detect(req, src)
}

func (e *Engine) detect(req *request, src *executor.Source) (refused *executor.Failure, err error) {
	r, err := src.Open()
	if err != nil {
		return nil, inputError(fieldTar, err)
	}
	found, err := guard(func() (detect.Found, error) {
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
		// A broken tar is its backend's to refuse: it unpacks, and names the entry that is at fault.
		return nil, nil
	}
	if len(found.Requirements) > maxRequirements || !utf8.ValidString(found.Requirements) || strings.ContainsRune(found.Requirements, 0) {
		return refusal("requirements.txt: not a text of at most 1 MiB"), nil
	}
	req.spec.Requirements = found.Requirements
	if req.requires == "" {
		req.requires = found.PythonVersion
	}
	if req.requires != "" && !detect.ValidSpecifier(req.requires) {
		return refusal(found.Entrypoint + ": script metadata: requires-python: not a version specifier"), nil
	}
	return nil, e.offered(req)
}

func refusal(message string) *executor.Failure {
	return &executor.Failure{
		Code: executor.Invalid, Phase: executor.PhasePrepare, Field: fieldTar,
		Message: strings.ToValidUTF8(clip(message, maxFailure), "\uFFFD"),
	}
}
