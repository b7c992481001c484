package backendtest

import "time"

// Virtual returns options for a suite in a bubble of testing/synctest.
func Virtual(o Options) Options {
	o.virtual = true
	return o
}

// InVain returns options for a Backend on which the suite waits in vain for an event. A longer wait would find nothing else.
func InVain(o Options) Options {
	o.bound = 2500 * time.Millisecond
	return o
}
