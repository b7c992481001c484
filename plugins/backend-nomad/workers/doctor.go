package workers

import (
	"context"
	"fmt"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

// Doctor checks what the mode needs of the cluster: the certificates, the service, and each worker's answer. It changes nothing. ctx
// bounds it.
func Doctor(ctx context.Context, client *api.Client, c Config) []backend.Finding {
	const topic = "workers"
	p, err := newPool(ctx, c, plugin.Configure{Name: "nomad", Instance: "doctor", Embedded: true}, nomadServices{client, c.Service})
	if err != nil {
		return append(backend.ConfigFindings(err), backend.Warn(topic, "the workers were not asked", "correct backends.nomad.workers, or the rights of the token (read-job)"))
	}
	defer p.Close() //nolint:errcheck // read only
	info, err := p.Info(ctx)
	if err != nil {
		return []backend.Finding{backend.Error(topic, err.Error(), "")}
	}
	var list []backend.Finding
	for _, w := range info.Warnings {
		list = append(list, backend.Warn(topic, w, ""))
	}
	if !info.Healthy {
		return append(list, backend.Error(topic, info.Message, "nomad job run deploy/nomad/workers.nomad.hcl"))
	}
	return append(list, backend.OK(topic, fmt.Sprintf("%.0f of %.0f workers can be used, with %d slots", info.Metrics["workers_usable"], info.Metrics["workers"], info.Capacity)))
}
