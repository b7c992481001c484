package config

import (
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// Worker configures the command worker, which serves the default backend to servers on other machines. Backend, Backends and DataDir
// count for it, too.
type Worker struct {
	// Bind is the listening address. Default "127.0.0.1:8090".
	Bind string `json:"bind"`
	// MaxConcurrent bounds the Executions that run at once, for all servers together. Default 2 × cores, at least 4.
	MaxConcurrent int `json:"max_concurrent"`
	// DrainTimeoutSeconds is how long a stopping worker lets Executions and Sessions go on. Default 30; 0: they end immediately.
	DrainTimeoutSeconds float64 `json:"drain_timeout_seconds"`
	// SilenceSeconds is how long the Sessions of a server that says nothing stay open. Default 120.
	SilenceSeconds float64   `json:"silence_seconds"`
	TLS            WorkerTLS `json:"tls"`
}

// WorkerTLS names the files of a worker, in PEM. They are read again when they have changed.
type WorkerTLS struct {
	// CACert has the certificates of the authorities that sign those of the servers.
	CACert string `json:"ca_cert"`
	// Cert is the worker's certificate, and Key its private key.
	Cert string `json:"cert"`
	Key  string `json:"key"`
	// PeerName is the DNS name that a server's certificate must have. Default "server.python-executor".
	PeerName string `json:"peer_name"`
}

// DrainTimeout returns DrainTimeoutSeconds.
func (w Worker) DrainTimeout() time.Duration { return seconds(w.DrainTimeoutSeconds) }

// Silence returns SilenceSeconds.
func (w Worker) Silence() time.Duration { return seconds(w.SilenceSeconds) }

func defaultWorker() Worker {
	return Worker{
		Bind: "127.0.0.1:8090", MaxConcurrent: concurrent(), DrainTimeoutSeconds: 30, SilenceSeconds: 120,
		TLS: WorkerTLS{PeerName: "server.python-executor"},
	}
}

func (w Worker) validate(p *executor.Problems) {
	if _, ok := hostOf(w.Bind); !ok {
		p.Add("worker.bind", "must be "+anAddress+" (got %q)", w.Bind)
	}
	atLeast(p, "worker.max_concurrent", w.MaxConcurrent, 1)
	upTo(p, "worker.drain_timeout_seconds", w.DrainTimeoutSeconds, maxSeconds)
	if w.SilenceSeconds < minSilence {
		p.Add("worker.silence_seconds", "must be >= %d (got %s)", minSilence, number(w.SilenceSeconds))
	} else {
		upTo(p, "worker.silence_seconds", w.SilenceSeconds, maxSeconds)
	}
	if w.TLS.PeerName == "" {
		p.Add("worker.tls.peer_name", "must be a DNS name")
	}
	if w.TLS.CACert == "" && w.TLS.Cert == "" && w.TLS.Key == "" {
		return // there is no worker
	}
	for _, f := range [][2]string{{"ca_cert", w.TLS.CACert}, {"cert", w.TLS.Cert}, {"key", w.TLS.Key}} {
		if f[1] == "" {
			p.Add("worker.tls."+f[0], "must be given with the other files of worker.tls")
		}
	}
}

// minSilence is several times the interval in which a server asks its workers.
const minSilence = 10
