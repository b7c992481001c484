package workers

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"
)

// listWait is how long the registry may hold an answer back while nothing changes.
const listWait = time.Minute

// registration is a registered worker.
type registration struct {
	// ID stays the same as long as the worker's allocation lives. Address is host:port.
	ID, Address string
	// Allocation and Node are for people.
	Allocation, Node string
}

// name returns a short name for people.
func (r registration) name() string {
	id := r.Allocation
	if id == "" {
		id = r.ID
	}
	return id[:min(8, len(id))] + " at " + r.Address
}

// registry knows which workers there are.
type registry interface {
	// list returns the registrations when they may differ from those that came with index, or after listWait. Index 0 means at once.
	list(ctx context.Context, index uint64) (all []registration, next uint64, err error)
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
