package workers

import (
	"context"
	"fmt"
	"strings"

	consul "github.com/hashicorp/consul/api"
	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/plugins/backend-nomad/agent"
)

// Doctor checks what the mode needs of the cluster: the registry where it is Consul, the certificates, the service, and each worker's
// answer. client is that of Nomad, which is not used with the provider consul. Doctor changes nothing. ctx bounds it.
func Doctor(ctx context.Context, client *api.Client, c Config) []backend.Finding {
	const topic = "workers"
	o := Options{Client: client, Config: c, Configure: plugin.Configure{Name: "nomad", Instance: "doctor", Embedded: true}}
	r, err := o.registry()
	if err != nil {
		return backend.ConfigFindings(err)
	}
	remedy := "correct backends.nomad.workers, or the rights of the token (read-job)"
	var list []backend.Finding
	if s, ok := r.(*consulServices); ok {
		remedy = "correct backends.nomad.workers, or the rights of the token (deploy/nomad/policies/workers-mode.consul.hcl)"
		if list, ok = s.findings(ctx); !ok {
			return list
		}
	}
	p, err := newPool(ctx, c, o.Configure, r, nil)
	if err != nil {
		return append(append(list, backend.ConfigFindings(err)...), backend.Warn(topic, "the workers were not asked", remedy))
	}
	defer p.Close() //nolint:errcheck // read only
	info, err := p.Info(ctx)
	if err != nil {
		return append(list, backend.Error(topic, err.Error(), ""))
	}
	for _, w := range info.Warnings {
		list = append(list, backend.Warn(topic, w, ""))
	}
	if !info.Healthy {
		return append(list, backend.Error(topic, info.Message, "nomad job run deploy/nomad/workers.nomad.hcl"))
	}
	return append(list, backend.OK(topic, fmt.Sprintf("%.0f of %.0f workers can be used, with %d slots", info.Metrics["workers_usable"], info.Metrics["workers"], info.Capacity)))
}

// findings returns whether the agent of Consul answers and knows the token. ok is false if the workers cannot be asked for.
func (s *consulServices) findings(ctx context.Context) (list []backend.Finding, ok bool) {
	query := (&consul.QueryOptions{}).WithContext(ctx)
	leader, err := s.client.Status().LeaderWithQueryOptions(query)
	if err != nil {
		return append(list, backend.Error("consul", err.Error(), "set backends.nomad.workers.consul.address or CONSUL_HTTP_ADDR to an agent of Consul")), false
	}
	if agent.IsOpen(s.address) {
		list = append(list, backend.Warn("tls", s.address+" is not encrypted: the token can be read on the way", "use TLS in Consul, and https:// in backends.nomad.workers.consul.address"))
	}
	remedy := "set backends.nomad.workers.consul.token_file or CONSUL_HTTP_TOKEN to a token with the policy deploy/nomad/policies/workers-mode.consul.hcl"
	_, _, err = s.client.ACL().TokenReadSelf(query)
	switch {
	case err == nil:
		list = append(list, backend.OK("token", "the ACL token of Consul is valid"))
	case strings.Contains(err.Error(), "ACL support disabled"):
		list = append(list, backend.Warn("token", "Consul has no ACLs: everybody who reaches it may register and remove workers", "consul acl bootstrap; deploy/nomad has the policy"))
	default:
		return append(list, backend.Error("token", err.Error(), remedy)), false
	}
	return append(list, backend.OK("consul", fmt.Sprintf("%s answers, its leader is %s", s.address, leader))), true
}
