package workers

import (
	"testing"

	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
)

func TestMain(m *testing.M) { nomadtest.Main(m) }
