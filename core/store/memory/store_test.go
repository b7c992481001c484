package memorystore_test

import (
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/executor/storetest"
	memorystore "github.com/python-executor/python-executor/core/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestStoreKeepsTheLaw(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) executor.Store {
		t.Helper()
		return memorystore.New(memorystore.Options{})
	})
}
