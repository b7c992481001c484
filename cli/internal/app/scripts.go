package app

import (
	"net"

	"github.com/python-executor/python-executor/core/config"
)

// localScripts reports whether callers without a token may run the allowed scripts. They may if there are no tokens and only
// this machine can connect.
func localScripts(c config.Config) bool {
	host, _, err := net.SplitHostPort(c.HTTP.Bind)
	return len(c.Scripts.Allowed) > 0 && len(c.HTTP.Tokens) == 0 && err == nil && config.Loopback(host)
}
