package app

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/worker"
)

// WorkerOptions are for Worker.
type WorkerOptions struct {
	Config config.Config
	Bundle Bundle
	Log    *slog.Logger
}

// workerTLS returns the files of the worker in c.
func workerTLS(c config.Config) worker.TLS { return worker.TLS(c.Worker.TLS) }

// expiresSoon is the rest of a certificate's time from which WorkerFindings warns.
const expiresSoon = 24 * time.Hour

// WorkerFindings checks the certificates of the worker in c; nil if c configures no worker.
func WorkerFindings(c config.Config) []backend.Finding {
	const topic = "worker"
	t := workerTLS(c)
	if t.CACert == "" && t.Cert == "" && t.Key == "" {
		return nil
	}
	if err := t.Check("worker.tls"); err != nil {
		return []backend.Finding{backend.Error(topic, err.Error(), "set the section worker of the configuration; `python-executor config show` prints its keys")}
	}
	names, err := t.Names()
	until, expiryErr := t.Expiry()
	if err != nil || expiryErr != nil {
		return nil // the files were changed since the check
	}
	if !slices.Contains(names, worker.WorkerName) {
		return []backend.Finding{backend.Warn(topic, fmt.Sprintf("the certificate %s has no DNS name %s (it has %q)", t.Cert, worker.WorkerName, names),
			"add the name, or set workers.tls.peer_name of the servers' backend to a name that it has")}
	}
	left := time.Until(until)
	message := fmt.Sprintf("%s, the certificate ends at %s", c.Worker.Bind, until.UTC().Format(time.RFC3339))
	if left <= 0 {
		return []backend.Finding{backend.Error(topic, message, "renew "+t.Cert)}
	}
	return []backend.Finding{backend.Check(left > expiresSoon, topic, message, message, "renew "+t.Cert)}
}

// checkWorker returns why c is no configuration of a worker.
func checkWorker(c config.Config) error {
	if typ := c.Backends[c.Backend].TypeOr(c.Backend); typ == "nomad" {
		return executor.FieldErrorf(executor.Invalid, "backend", "must be a backend that runs programs on this machine (got %s, of type nomad)", c.Backend)
	}
	return workerTLS(c).Check("worker.tls")
}
