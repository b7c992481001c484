package nomadbackend

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/plugins/backend-nomad/agent"
	"github.com/python-executor/python-executor/plugins/backend-nomad/jobs"
	"github.com/python-executor/python-executor/plugins/backend-nomad/workers"
)

// askTime bounds the requests to the agent together.
const askTime = 20 * time.Second

// Doctor checks the environment of a backend with this section: the agent, its version, the ACL token, and what the mode needs. It
// changes nothing in the cluster. Where workers are found in Consul, it asks Consul only. ctx bounds it.
func Doctor(ctx context.Context, section json.RawMessage) []backend.Finding {
	c, err := parseConfig("nomad", section)
	if err != nil {
		return backend.ConfigFindings(err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, fmt.Errorf("no answer within %s", askTime))
	defer cancel()
	if c.nomadFree() {
		return workers.Doctor(ctx, nil, c.Workers)
	}
	client, err := newClient("nomad", c)
	if err != nil {
		return backend.ConfigFindings(err)
	}
	defer client.Close()
	list, ok := agentFindings(ctx, client)
	if !ok {
		return list
	}
	if c.Mode == ModeWorkers {
		return append(list, workers.Doctor(ctx, client, c.Workers)...)
	}
	return append(list, jobs.Doctor(ctx, client, c.Job)...)
}

// agentFindings returns whether the agent answers and knows the token, and which Nomad it is. ok is false if the mode cannot be
// checked.
func agentFindings(ctx context.Context, client *api.Client) (list []backend.Finding, ok bool) {
	query := (&api.QueryOptions{}).WithContext(ctx)
	leader, err := leaderOf(ctx, client)
	if err != nil {
		return append(list, backend.Error("nomad", err.Error(), "set backends.nomad.address or NOMAD_ADDR to an agent of the cluster")), false
	}
	list = append(list, plainFinding(client.Address())...)
	remedy := "set backends.nomad.token_file or NOMAD_TOKEN to a token with the policy of deploy/nomad"
	token, _, err := client.ACLTokens().Self(query)
	switch {
	case err != nil:
		return append(list, backend.Error("token", err.Error(), remedy)), false
	case token.AccessorID == "acls-disabled":
		list = append(list, backend.Warn("token", "the cluster has no ACLs: everybody who reaches it may run and read everything", "nomad acl bootstrap; deploy/nomad has the policies"))
	case token.AccessorID == "anonymous":
		return append(list, backend.Error("token", "there is no ACL token, and the cluster needs one", remedy)), false
	default:
		list = append(list, backend.OK("token", "the ACL token is valid"))
	}
	message := fmt.Sprintf("%s answers, its leader is %s", client.Address(), leader)
	if self, err := client.Agent().Self(); err == nil { // needs agent:read, which the policies of deploy/nomad do not have
		message = fmt.Sprintf("%s answers, its leader is %s, version %s", client.Address(), leader, self.Member.Tags["build"])
	}
	return append(list, backend.OK("nomad", message)), true
}

// leaderOf asks for the cluster's leader, which needs no token.
func leaderOf(ctx context.Context, client *api.Client) (leader string, err error) {
	_, err = client.Raw().Query("/v1/status/leader", &leader, (&api.QueryOptions{}).WithContext(ctx))
	return leader, err
}

// plainFinding warns of a connection over a network that anybody there can read.
func plainFinding(address string) []backend.Finding {
	if !agent.IsOpen(address) {
		return nil
	}
	return []backend.Finding{backend.Warn("tls", address+" is not encrypted: the token and all code can be read on the way", "use TLS in the cluster, and https:// in backends.nomad.address")}
}
