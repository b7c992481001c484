package host

import "time"

// SetSteady changes the uptime after which a crash of a plugin counts as the first again. Call it before Start.
func (h *Host) SetSteady(d time.Duration) { h.steady = d }

// Steady is as SetSteady, for a frontend.
func (o *FrontendOptions) Steady(d time.Duration) { o.steady = d }
