package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/python-executor/python-executor/cli/internal/stop"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/host"
	"github.com/python-executor/python-executor/core/peer"
	httpfrontend "github.com/python-executor/python-executor/frontends/http"
	mcpfrontend "github.com/python-executor/python-executor/plugins/frontend-mcp"
)

// mcpServer is the MCP frontend of a server. Changed settings get another process of the plugin: the MCP sessions of the former one end,
// and its clients are told so by the status 404, after which they initialize again. Calls that run are answered.
type mcpServer struct {
	o      ServeOptions
	core   *core
	svc    executor.Service
	refuse func() []peer.UIDRange

	mu sync.Mutex
	// frontend is nil without toolsets. config is that of frontend, and options is config as the plugin gets it, without the socket.
	frontend *host.Frontend
	config   config.Config
	options  json.RawMessage
	// started counts the frontends. Each has a socket of its own.
	started int
	// ending are the former frontends that still answer calls.
	ending sync.WaitGroup
}

// pluginConfig returns the configuration of the plugin, without its socket. Backend is empty, because the default backend may change.
func (m *mcpServer) pluginConfig(c config.Config) mcpfrontend.Config {
	p := mcpConfig(c, m.o.Bundle.Version)
	if c.MCP.HTTP.Enabled {
		p.HTTP.Bind = c.MCP.HTTP.Bind
		p.HTTP.RefuseUIDs = m.refuse()
	}
	p.TestFixtures = m.o.TestFixtures
	return p
}

// start starts the frontend of c, if it has toolsets. Without a listener, whose address may be taken, it starts in the background.
func (m *mcpServer) start(ctx context.Context, c config.Config) error {
	return m.replace(ctx, c, !c.MCP.HTTP.Enabled)
}

// differs reports whether c needs another process than the present one.
func (m *mcpServer) differs(c config.Config) bool {
	options, err := marshal(m.pluginConfig(c))
	m.mu.Lock()
	defer m.mu.Unlock()
	return err != nil || (m.frontend == nil) != (len(c.MCP.Toolsets) == 0) || m.frontend != nil && !bytes.Equal(options, m.options)
}

// replace puts the frontend of c in the place of the present one. After an error the present one goes on. Where both need the same
// address, the present one is ended first, and started again after an error.
func (m *mcpServer) replace(ctx context.Context, c config.Config, background bool) error {
	m.mu.Lock()
	former, before := m.frontend, m.config
	m.mu.Unlock()
	sameAddress := former != nil && before.MCP.HTTP.Enabled && c.MCP.HTTP.Enabled && before.MCP.HTTP.Bind == c.MCP.HTTP.Bind
	if sameAddress {
		m.end(former, before)
		former = nil
	}
	next, options, err := m.launch(ctx, c, background, former != nil)
	if err != nil && sameAddress {
		next, options, _ = m.launch(context.WithoutCancel(ctx), before, true, false) // in the background it does not fail
		c = before
	}
	if err != nil && !sameAddress {
		return err
	}
	m.mu.Lock()
	m.frontend, m.config, m.options = next, c, options
	m.mu.Unlock()
	if former != nil {
		m.ending.Go(func() { m.end(former, before) })
	}
	return err
}

// launch starts the frontend of c; nil without toolsets. successor: the former one still ends its calls.
func (m *mcpServer) launch(ctx context.Context, c config.Config, background, successor bool) (*host.Frontend, json.RawMessage, error) {
	if len(c.MCP.Toolsets) == 0 {
		return nil, nil, nil
	}
	p := m.pluginConfig(c)
	compared, err := marshal(p)
	if err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	m.started++
	p.HTTP.Socket = filepath.Join(m.core.runDir, fmt.Sprintf("mcp-%d.sock", m.started))
	m.mu.Unlock()
	options, err := marshal(p)
	if err != nil {
		return nil, nil, err
	}
	first := options
	if successor {
		p.Successor = true
		if first, err = marshal(p); err != nil {
			return nil, nil, err
		}
	}
	f, err := host.StartFrontend(ctx, host.FrontendOptions{
		Name: mcpName, Path: "/proc/self/exe", Args: []string{os.Args[0], "plugin", mcpCommand}, Options: options, FirstOptions: first,
		RunDir: m.core.runDir, Restart: true, Background: background, Log: m.o.Log,
	}, m.svc)
	return f, compared, err
}

// end lets the calls of a former frontend end.
func (m *mcpServer) end(f *host.Frontend, c config.Config) {
	bounded, cancel := context.WithTimeout(context.Background(), c.Engine.DrainTimeout())
	defer cancel()
	if err := f.Close(bounded); err != nil {
		m.o.Log.Warn("the former MCP frontend was not drained", "error", err)
	}
}

// close ends the present frontend, and waits for the former ones. A frontend that does not drain until ctx ends is not an error.
func (m *mcpServer) close(ctx context.Context) error {
	m.mu.Lock()
	f := m.frontend
	m.mu.Unlock()
	var err error
	if f != nil {
		if err = f.Close(ctx); ctx.Err() != nil && executor.CodeOf(err) == executor.Unavailable {
			m.o.Log.Warn("the MCP frontend was not drained", "error", err)
			err = nil // its calls had their time, like those of the HTTP frontend
		}
	}
	ended := make(chan struct{})
	go func() {
		m.ending.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-stop.Now(ctx):
	case <-ctx.Done():
	}
	return err
}

// mount returns how the HTTP frontend of c reaches the plugin; nil without toolsets.
func (m *mcpServer) mount(c config.Config) *httpfrontend.MCP {
	if len(c.MCP.Toolsets) == 0 {
		return nil
	}
	return &httpfrontend.MCP{
		Path: c.MCP.HTTP.Path, PrincipalHeader: mcpfrontend.PrincipalHeader, MaxBodyBytes: c.MCP.HTTP.MaxBodyBytes,
		Socket: func(ctx context.Context) string {
			m.mu.Lock()
			f := m.frontend
			m.mu.Unlock()
			if f == nil {
				return ""
			}
			return f.Await(ctx)[mcpfrontend.DetailSocket]
		},
	}
}

// announce logs where MCP is served. base is the URL of the HTTP API.
func (m *mcpServer) announce(base string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.frontend == nil {
		return
	}
	m.o.Log.Info("MCP endpoint", "url", base+m.config.MCP.HTTP.Path)
	if address := m.frontend.Details()[mcpfrontend.DetailAddress]; address != "" {
		m.o.Log.Info("listening for MCP", "url", "http://"+address+m.config.MCP.HTTP.Path)
	}
}
