package network

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// maxAddresses bounds the addresses with names, and maxNames the names of an address.
	maxAddresses, maxNames = 4096, 4
	// minNameTime is how long a name is remembered at least. Programs keep addresses for longer than DNS allows.
	minNameTime = 10 * time.Minute
)

// names remembers what programs have looked up.
type names struct {
	mu   sync.Mutex
	find map[netip.Addr][]named
}

type named struct {
	name  string
	until time.Time
}

func newNames() *names { return &names{find: map[netip.Addr][]named{}} }

func (n *names) clear() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.find)
}

// add notes that name has the address for as long as the answer is valid.
func (n *names) add(name string, a netip.Addr, valid time.Duration) {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.find[a]; !known && len(n.find) >= maxAddresses {
		n.makeRoomLocked(now)
	}
	list := slices.DeleteFunc(n.find[a], func(old named) bool { return old.name == name || old.until.Before(now) })
	list = slices.Insert(list, 0, named{name, now.Add(max(valid, minNameTime))})
	n.find[a] = list[:min(len(list), maxNames)]
}

// makeRoomLocked forgets what is not valid any more, and if that is too little, any eighth of the addresses.
func (n *names) makeRoomLocked(now time.Time) {
	for a, list := range n.find {
		if list[0].until.Before(now) {
			delete(n.find, a)
		}
	}
	for a := range n.find {
		if len(n.find) <= maxAddresses*7/8 {
			return
		}
		delete(n.find, a)
	}
}

// of returns the names of an address, the latest first.
func (n *names) of(a netip.Addr) (found []string) {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, x := range n.find[a.Unmap()] {
		if x.until.After(now) {
			found = append(found, x.name)
		}
	}
	return found
}
