package plugin

import "time"

// BePatient gives plugins more time to end their calls than a busy machine needs. It is called before the tests, and in the plugins.
func BePatient() { stopGrace, defaultCutGrace = 10*time.Second, 30*time.Second }
