package mcpfrontend

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"

	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/peer"
)

// The keys of the details that Factory returns.
const (
	// DetailAddress is the key of the address that HTTP listens on.
	DetailAddress = "http"
	// DetailSocket is the key of the path of the unix socket for the HTTP frontend.
	DetailSocket = "socket"
)

var _ plugin.FrontendFactory = Factory

// Factory returns the frontend for the options of c, which are a Config. The frontend already listens when Factory returns.
// Codes: invalid, unavailable.
func Factory(_ context.Context, c plugin.Configure) (executor.Frontend, map[string]string, error) {
	config, err := parseConfig(c.Name, c.Options)
	if err != nil {
		return nil, nil, err
	}
	log := c.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	f := &frontend{config: config, log: log}
	if f.authenticator, err = auth.New(config.HTTP.Tokens); err != nil {
		return nil, nil, err
	}
	if config.HTTP.LocalScripts {
		f.authenticator.Allow(executor.ScopeScripts)
	}
	details := map[string]string{}
	if config.HTTP.Bind != "" {
		if f.listener, err = net.Listen("tcp", config.HTTP.Bind); err != nil { //nolint:noctx // it listens at once
			return nil, nil, executor.FieldErrorf(executor.Unavailable, c.Name+".http.bind", "%v", err)
		}
		details[DetailAddress] = f.listener.Addr().String()
		f.listener = peer.New(config.HTTP.RefuseUIDs, log).Listener(peer.Patient(f.listener, log))
	}
	if config.HTTP.Socket != "" {
		// A process that was killed may have left its socket. The folder is private, so nobody else uses that path.
		_ = os.Remove(config.HTTP.Socket)
		if f.socket, err = net.Listen("unix", config.HTTP.Socket); err != nil { //nolint:noctx // it listens at once
			return nil, nil, errors.Join(executor.FieldErrorf(executor.Unavailable, c.Name+".http.socket", "%v", err), f.close())
		}
		f.socket = peer.Patient(f.socket, log)
		details[DetailSocket] = config.HTTP.Socket
	}
	return f.serve, details, nil
}
