package backendtest

import "time"

// InVain returns options for a Backend on which the suite waits in vain for an event. A longer wait would find nothing else.
func InVain(o Options) Options {
	o.bound = 2500 * time.Millisecond
	return o
}
