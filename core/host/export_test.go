package host

import "time"

// SetSteady changes the uptime after which a crash of a plugin counts as the first again. Call it before Start.
func (h *Host) SetSteady(d time.Duration) { h.steady = d }

// SetGrace changes how long a plugin that was not drained has to end, before it is killed, and how long the clean-up behind it may take.
func (h *Host) SetGrace(cut, sweep time.Duration) { h.cutGrace, h.sweepLimit = cut, sweep }

// Steady is as SetSteady, for a frontend.
func (o *FrontendOptions) Steady(d time.Duration) { o.steady = d }
