package workers

import (
	"archive/tar"
	"testing"

	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
)

func TestMain(m *testing.M) { nomadtest.Main(m) }

type tarHeader = tar.Header

func pluginConfigure() plugin.Configure { return plugin.Configure{Name: "nomad", Instance: "one"} }
