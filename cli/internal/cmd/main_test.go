//go:build !linux

package cmd

import (
	"testing"

	"github.com/python-executor/python-executor/core/executor/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
