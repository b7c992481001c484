package workers

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	consul "github.com/hashicorp/consul/api"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/plugins/backend-nomad/agent"
)

// MetaAllocation is the key in a Consul service's meta that names the worker's allocation.
const MetaAllocation = "allocation"

// Consul is where workers are found with the provider consul. An empty Address, Token, Namespace, Partition or field of TLS means the
// variable of the consul command (CONSUL_HTTP_ADDR, CONSUL_HTTP_TOKEN and so on).
type Consul struct {
	// Address is an agent of Consul: http://HOST:PORT, https://HOST:PORT or unix://PATH. Default: CONSUL_HTTP_ADDR, else
	// http://127.0.0.1:8500.
	Address string `json:"address"`
	// Token is the ACL token. Default: TokenFile, else CONSUL_HTTP_TOKEN_FILE, else CONSUL_HTTP_TOKEN.
	Token string `json:"token"`
	// TokenFile is a file of this host with the ACL token. It is read when the backend starts.
	TokenFile string `json:"token_file"`
	// Datacenter is where the workers are registered. Default: that of the agent.
	Datacenter string `json:"datacenter"`
	// Namespace and Partition are those of the workers in Consul Enterprise. Default: CONSUL_NAMESPACE and CONSUL_PARTITION, else
	// those of the token.
	Namespace string `json:"namespace"`
	Partition string `json:"partition"`
	// TLS secures the connection to the agent.
	TLS agent.TLS `json:"tls"`
}

func (c Consul) agent() agent.Settings {
	return agent.Settings{Address: c.Address, Token: c.Token, TokenFile: c.TokenFile, TLS: c.TLS}
}

// consulServices is the registry of services with provider = "consul", and of those that a Consul agent was told of by others.
type consulServices struct {
	client  *consul.Client
	service string
	// address is the one in effect.
	address string
}

// newConsulServices returns the registry of the agent that c and the variables of the consul command name. It makes no request. Codes:
// invalid (a file that cannot be read, among others).
func newConsulServices(name, service string, c Consul) (*consulServices, error) {
	const under = "workers.consul."
	p := backend.Section(name)
	// A query takes a minute unless something changes, so nothing is lost by a connection for each.
	settings := consul.DefaultNonPooledConfig()
	if c.Address != "" {
		settings.Address, settings.Scheme = c.Address, "http" // the address may have another
	}
	address := settings.Address
	if bare, plain := strings.CutPrefix(address, "http://"); plain || !strings.Contains(address, "://") {
		address = settings.Scheme + "://" + bare // CONSUL_HTTP_SSL may have made it https
	}
	if token := c.agent().Secret(p, under, address); token != "" {
		settings.Token, settings.TokenFile = token, ""
	}
	settings.Datacenter = c.Datacenter
	settings.Namespace = cmp.Or(c.Namespace, settings.Namespace)
	settings.Partition = cmp.Or(c.Partition, settings.Partition)
	settings.TLSConfig.CAFile = cmp.Or(c.TLS.CACert, settings.TLSConfig.CAFile)
	settings.TLSConfig.Address = cmp.Or(c.TLS.ServerName, settings.TLSConfig.Address)
	if c.TLS.Cert != "" { // the two belong together
		settings.TLSConfig.CertFile, settings.TLSConfig.KeyFile = c.TLS.Cert, c.TLS.Key
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	client, err := consul.NewClient(settings)
	if err != nil {
		p.Add(under+"address", "no client of Consul: %s", err)
		return nil, p.Err()
	}
	return &consulServices{client: client, service: service, address: address}, nil
}

// list implements registry. Only instances whose checks all pass are returned.
func (s *consulServices) list(ctx context.Context, index uint64) ([]registration, uint64, error) {
	query := (&consul.QueryOptions{WaitIndex: index, WaitTime: listWait}).WithContext(ctx)
	found, meta, err := s.client.Health().Service(s.service, "", true, query)
	if err != nil {
		return nil, 0, err
	}
	if len(found) == 0 && meta.ResultsFilteredByACLs {
		// Otherwise a token that has lost its rights would look like the end of all workers.
		return nil, 0, fmt.Errorf("the token may not see the instances of %s: it needs service:read of it, and node:read", s.service)
	}
	all := make([]registration, 0, len(found))
	for _, r := range found {
		if r.Node == nil || r.Service == nil {
			return nil, 0, fmt.Errorf("%s does not answer as Consul does", s.address)
		}
		all = append(all, registration{
			ID:         r.Node.Node + "/" + r.Service.ID, // an ID is unique on its node only
			Address:    net.JoinHostPort(cmp.Or(r.Service.Address, r.Node.Address), strconv.Itoa(r.Service.Port)),
			Allocation: r.Service.Meta[MetaAllocation], Node: r.Node.Node,
		})
	}
	if meta.LastIndex < index {
		return all, 0, nil // the servers' state was replaced
	}
	return all, max(1, meta.LastIndex), nil // with 0, the next query would not be held back
}
