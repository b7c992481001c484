package plugintest_test

import (
	"context"
	"os"
	"strconv"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

func TestMain(m *testing.M) {
	plugintest.Main(map[string]plugin.Factory{"still": func(context.Context, plugin.Configure) (executor.Backend, error) {
		return still{}, nil
	}})
	leaktest.Main(m)
}

// still is a backend that only says where it is.
type still struct{ executor.Backend }

func (still) Info(context.Context) (executor.Info, error) {
	return executor.Info{Message: strconv.Itoa(os.Getpid())}, nil
}

func where(t *testing.T, b executor.Backend) int {
	t.Helper()
	info, err := b.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(info.Message)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestTheLanesRunTheBackendWhereTheySay(t *testing.T) {
	t.Parallel()
	if pid := where(t, plugintest.Wire(t, still{})); pid != os.Getpid() {
		t.Errorf("Wire runs it in process %d, ours is %d", pid, os.Getpid())
	}
	p := plugintest.Process(t, "still", nil)
	if pid := where(t, p.Backend); pid != p.PID || pid == os.Getpid() {
		t.Errorf("Process runs it in process %d, and says %d; ours is %d", pid, p.PID, os.Getpid())
	}
}

func TestAKilledPluginStaysDead(t *testing.T) {
	t.Parallel()
	p := plugintest.Process(t, "still", nil)
	p.Kill()
	if _, err := p.Backend.Info(t.Context()); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("got %v", err)
	}
}

func TestATypeThatTheTestDoesNotHaveIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := plugintest.Start(t, plugin.Configure{Name: "other"}); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("got %v", err)
	}
}
