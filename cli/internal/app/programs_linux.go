package app

import (
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/peer"
)

// programUIDs returns the users that run programs on this host's network, for every configured backend and not only for the
// default one.
func programUIDs(backends map[string]config.Backend, b Bundle) []peer.UIDRange {
	var list []peer.UIDRange
	for name, entry := range backends {
		_, p, ok := b.ByType(entry.TypeOr(name))
		if !ok || p.UIDs == nil {
			continue
		}
		if first, last, ok := p.UIDs(entry.Options); ok {
			list = append(list, peer.UIDRange{First: first, Last: last})
		}
	}
	return list
}
