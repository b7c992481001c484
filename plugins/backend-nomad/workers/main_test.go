package workers

import (
	"archive/tar"
	"testing"

	"go.uber.org/goleak"

	"github.com/python-executor/python-executor/core/executor/plugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type tarHeader = tar.Header

func pluginConfigure() plugin.Configure { return plugin.Configure{Name: "nomad", Instance: "one"} }
