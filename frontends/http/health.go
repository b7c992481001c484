package httpfrontend

import (
	"errors"
	"net/http"

	"github.com/python-executor/python-executor/core/executor"
)

// programName is what /healthz says.
const programName = "python-executor"

type health struct {
	OK      bool   `json:"ok"`
	Name    string `json:"name"`
	Version string `json:"version"`
}

// healthz answers as long as the process does.
func (f *frontend) healthz(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, health{OK: true, Name: programName, Version: f.opts.Version})
}

// readyz answers whether work would be accepted now.
func (f *frontend) readyz(w http.ResponseWriter, r *http.Request) error {
	if f.opts.Ready != nil {
		if err := f.opts.Ready(r.Context()); err != nil {
			message := "not ready"
			if e, ok := errors.AsType[*executor.Error](err); ok && e.Code != executor.Internal && e.Message != "" {
				message = e.Message
			}
			return &executor.Error{Code: executor.Unavailable, Message: message, Err: err}
		}
	}
	return writeJSON(w, http.StatusOK, map[string]bool{"ready": true})
}

// metrics serves the Prometheus text. It counts everybody's Executions, so with tokens it is the administrator's.
func (f *frontend) metrics(w http.ResponseWriter, r *http.Request) error {
	if f.opts.Metrics == nil {
		return executor.Errorf(executor.NotFound, "this server has no metrics")
	}
	if f.authenticator.Enabled() && !executor.PrincipalFrom(r.Context()).Has(executor.ScopeAdmin) {
		return executor.Errorf(executor.Denied, "metrics need the scope admin")
	}
	f.opts.Metrics.ServeHTTP(w, r)
	return nil
}

// backends describes the configured backends.
func (f *frontend) backends(w http.ResponseWriter, r *http.Request) error {
	infos, err := f.svc.Backends(r.Context())
	if err != nil {
		return err
	}
	out := make([]executor.Info, len(infos))
	for i, info := range infos {
		if info.Capabilities.Languages == nil {
			info.Capabilities.Languages = []executor.Language{}
		}
		info.Capabilities.PythonVersions = list0(info.Capabilities.PythonVersions)
		out[i] = info
	}
	return writeJSON(w, http.StatusOK, map[string][]executor.Info{"backends": out})
}
