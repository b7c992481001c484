package workers

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"
)

const (
	// listWait is how long the registry may hold an answer back while nothing changes. It adds up to a sixteenth.
	listWait = time.Minute
	// listLimit bounds the wait for an answer, so that a connection that was cut without a word is noticed.
	listLimit = listWait + listWait/4
)

// registration is a registered worker.
type registration struct {
	// ID stays the same as long as the worker's allocation lives. Address is host:port.
	ID, Address string
	// Allocation and Node are for people.
	Allocation, Node string
}

// name returns a short name for people.
func (r registration) name() string {
	if r.Allocation == "" {
		return r.ID + " at " + r.Address
	}
	return r.Allocation[:min(8, len(r.Allocation))] + " at " + r.Address
}

// registry knows which workers there are.
type registry interface {
	// list returns the registrations when they may differ from those that came with index, or after listWait. Index 0 means at once.
	list(ctx context.Context, index uint64) (all []registration, next uint64, err error)
}

// registry returns the registry of o.Config.Provider. Codes: invalid.
func (o Options) registry() (registry, error) {
	if o.Config.Provider == ProviderConsul {
		return newConsulServices(o.Configure.Name, o.Config.Service, o.Config.Consul)
	}
	return nomadServices{o.Client, o.Config.Service}, nil
}

// nomadServices is the registry of services with provider = "nomad".
type nomadServices struct {
	client  *api.Client
	service string
}

// list implements registry.
func (s nomadServices) list(ctx context.Context, index uint64) ([]registration, uint64, error) {
	found, meta, err := s.client.Services().Get(s.service, (&api.QueryOptions{WaitIndex: index, WaitTime: listWait}).WithContext(ctx))
	if err != nil {
		return nil, 0, err
	}
	all := make([]registration, 0, len(found))
	for _, r := range found {
		all = append(all, registration{
			ID: r.ID, Address: net.JoinHostPort(r.Address, strconv.Itoa(r.Port)), Allocation: r.AllocID, Node: r.NodeID,
		})
	}
	if meta.LastIndex < index {
		return all, 0, nil // the servers' state was replaced
	}
	return all, meta.LastIndex, nil
}
