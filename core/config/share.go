package config

// ShareExecutions sets engine.max_per_owner to its default. With tokens there may be several owners: each may have half of
// the Executions that the server takes, at least one. Without, all is one owner's, and there is no bound.
func (c *Config) ShareExecutions() {
	c.Engine.MaxPerOwner = c.share(c.Engine.MaxConcurrent + c.Engine.MaxQueued)
}

// ShareSessions sets sessions.max_per_owner likewise: half of sessions.max.
func (c *Config) ShareSessions() { c.Sessions.MaxPerOwner = c.share(c.Sessions.Max) }

func (c *Config) share(all int) int {
	if len(c.HTTP.Tokens) == 0 {
		return 0
	}
	return max(1, all/2)
}
