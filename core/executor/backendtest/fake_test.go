package backendtest_test

import (
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/backendtest"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

func TestMain(m *testing.M) {
	pluginMain()
	leaktest.Main(m)
}

// fakeOptions returns the Options of the suite for the fake.
func fakeOptions() backendtest.Options {
	return backendtest.Options{
		Dialect: backendtest.DialectFake,
		Requirement: backendtest.Requirement{
			Text: "pyexec-probe==1.2.3", Import: "pyexec-probe", Version: "1.2.3", Resolved: "pyexec-probe==1.2.3",
		},
	}
}

func TestTheFakeKeepsTheLaw(t *testing.T) {
	backendtest.Run(t, backendtest.Harness{
		New:     func(*testing.T) executor.Backend { return fake.New(fake.Options{}) },
		Process: func(t *testing.T) *plugintest.Plugin { return plugintest.Process(t, "fake", nil) },
		Lanes:   []backendtest.LaneRules{{Lane: backendtest.LaneDirect}, {Lane: backendtest.LaneWire}, backendtest.SecondProcess},
		Virtual: true,
		Options: fakeOptions(),
	})
}
