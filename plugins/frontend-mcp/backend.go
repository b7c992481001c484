package mcpfrontend

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/server"

	"github.com/python-executor/python-executor/core/executor"
)

// lookEvery is how often watch asks for the Info of the backend. Calls use the last one, because a call that asked would be slower by
// milliseconds (docs/decisions/0042). A tools/list always takes a new one.
const lookEvery = 2 * time.Second

// lookPatience bounds a look of watch. A server that does not answer is asked again.
const lookPatience = 30 * time.Second

// hostDirectories is the key of Info.Details that says whether programs may change a HostDirectory.
const hostDirectories = "host_directories"

// offered is the backend that the tools use, and the tools that are offered for it. A live switch changes both.
type offered struct {
	mu   sync.Mutex
	info executor.Info
	// tools are the tools of the toolsets. tools.offering guards it.
	tools []server.ServerTool
	// begun counts the looks. last is the look that info is of, or one that found the same. tools.offering guards last.
	begun atomic.Int64
	last  int64
}

// backend returns the Info of the backend that the tools use.
func (t *tools) backend() executor.Info {
	t.offered.mu.Lock()
	defer t.offered.mu.Unlock()
	return t.offered.info
}

// offer adds the tools of every toolset that the backend can serve, and removes the tools that it cannot serve. Clients are
// notified.
func (t *tools) offer() {
	before := t.offered.tools
	t.offered.tools = nil
	for _, add := range t.toolsets {
		add()
	}
	var gone []string
	for _, b := range before {
		if !slices.ContainsFunc(t.offered.tools, func(now server.ServerTool) bool { return now.Tool.Name == b.Tool.Name }) {
			gone = append(gone, b.Tool.Name)
		}
	}
	if len(gone) > 0 {
		t.server.DeleteTools(gone...)
	}
	t.server.AddTools(t.offered.tools...)
	t.prepare()
}

// look asks for the Info of the backend, and offers the tools anew if it has changed. A backend that is down keeps its tools.
func (t *tools) look(ctx context.Context) {
	began := t.offered.begun.Add(1)
	// The tools are the same for all callers, whatever their rights.
	now, err := chooseBackend(executor.WithPrincipal(ctx, executor.PrincipalFrom(context.Background())), t.svc, t.config.Backend)
	if err != nil {
		t.log.Debug("look at the backend", "error", err)
		return
	}
	t.offering.Lock()
	defer t.offering.Unlock()
	if began < t.offered.last { // the backend may have changed since it was asked
		return
	}
	t.offered.last = began
	t.offered.mu.Lock()
	before := t.offered.info
	same := now.Name == before.Name && (!now.Healthy || before.Healthy && reflect.DeepEqual(now.Capabilities, before.Capabilities) &&
		now.Details[hostDirectories] == before.Details[hostDirectories])
	if !same {
		t.offered.info = now
	}
	t.offered.mu.Unlock()
	if !same {
		t.log.Info("the tools are described anew", "backend", now.Name, "healthy", now.Healthy)
		t.offer()
	}
}

// watch looks at the backend until the end of life.
func (t *tools) watch() {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			ctx, cancel := context.WithTimeout(t.life, lookPatience)
			t.look(ctx)
			cancel()
		case <-t.life.Done():
			return
		}
	}
}

// prepare opens a context with the configured requirements and closes it, in the background. The backend then has their
// environment.
func (t *tools) prepare() {
	can := t.backend().Capabilities
	if !t.config.has(ToolsetContexts) || len(t.config.Contexts.Requirements) == 0 || !can.Sessions || !can.Requirements {
		return
	}
	t.wg.Go(func() {
		began := time.Now()
		s, err := t.svc.OpenSession(t.life, executor.Session{Name: "prepare mcp.contexts.requirements", Language: executor.LanguagePython, Spec: t.contextSpec(nil)})
		if err == nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.life), endTimeout)
			defer cancel()
			_, err = t.svc.CloseSession(ctx, s.ID)
		}
		switch {
		case t.life.Err() != nil:
		case err != nil:
			t.log.Error("mcp.contexts.requirements: not prepared", "error", argumentError(err, map[string]string{"requirements_txt": "mcp.contexts.requirements"}))
		default:
			t.log.Info("mcp.contexts.requirements: prepared", "duration", time.Since(began))
		}
	})
}

// versions returns the Python versions for a message, those at hand first; "" if any may be.
func (t *tools) versions() string { return strings.Join(t.backend().Capabilities.Pythons(), ", ") }

// checkVersion checks the form of python_version. Whether the backend has the version is the engine's to say.
func (t *tools) checkVersion(version string) error {
	if version == "" || minorForm.MatchString(version) {
		return nil
	}
	if at := t.versions(); at != "" {
		return fmt.Errorf("python_version must be an exact minor version, one of %s (got %q)", at, version)
	}
	return fmt.Errorf("python_version must be an exact minor version like 3.13 (got %q)", version)
}

// withVersions adds to the schema of an argument python_version the versions that it may have.
func withVersions(schema any, versions []string) {
	object, _ := schema.(map[string]any)
	properties, _ := object["properties"].(map[string]any)
	if version, ok := properties["python_version"].(map[string]any); ok && len(versions) > 0 {
		version["enum"] = versions
	}
}
