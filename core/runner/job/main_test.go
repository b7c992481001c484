package job

import (
	"testing"

	"github.com/python-executor/python-executor/core/executor/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
