package jobs

import (
	"context"
	"fmt"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/backend"
)

// Doctor checks what the mode needs of the cluster. It changes nothing. ctx bounds it.
func Doctor(ctx context.Context, client *api.Client, c Config) []backend.Finding {
	nodes, _, err := client.Nodes().List(query(ctx))
	if err != nil {
		return []backend.Finding{backend.Warn("nodes", refusal("list the nodes", err).Error(), "give the token node:read")}
	}
	able := 0
	for _, n := range nodes {
		if d := n.Drivers["docker"]; d != nil && d.Healthy && n.SchedulingEligibility == api.NodeSchedulingEligible {
			able++
		}
	}
	if able == 0 {
		return []backend.Finding{backend.Error("nodes", "no node with the docker driver can take jobs", "start Docker beside a client of Nomad")}
	}
	list := []backend.Finding{backend.OK("nodes", fmt.Sprintf("%d nodes", able)+" with the docker driver can take jobs")}
	if c.Transfer.URL == "" {
		list = append(list, backend.Warn("transfer", "the runner and large inputs are served to clients on this host only",
			"set backends.nomad.job.transfer.listen and transfer.url to an address that all clients reach"))
	}
	return list
}
