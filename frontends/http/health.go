package httpfrontend

import (
	"errors"
	"net/http"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/frontends/http/apijson"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// programName is the name in /healthz.
const programName = "python-executor"

// healthz answers while the process is up.
func (f *frontend) healthz(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, pyexec.Health{OK: true, Name: programName, Version: f.opts.Version})
}

// readiness is the answer of /readyz.
type readiness struct {
	Ready bool `json:"ready"`
	// Configuration says that the configuration was changed and is not in effect.
	Configuration string `json:"configuration,omitempty" doc:"Why a changed configuration is not in effect; the former one is. Absent if it is in effect."`
}

// readyz answers whether Executions are accepted now.
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
	answer := readiness{Ready: true}
	if f.opts.Notice != nil {
		answer.Configuration = f.opts.Notice()
	}
	return writeJSON(w, http.StatusOK, answer)
}

// metrics serves the Prometheus text. It counts the Executions of all owners, so with tokens it needs the scope admin.
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
	return answer(w, err, apijson.BackendsOf(infos))
}
