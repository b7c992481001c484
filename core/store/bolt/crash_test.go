package boltstore_test

import (
	"os"
)

const crashEnv = "PYEXEC_TEST_BOLTSTORE_CRASH"

func crashChild() { os.Exit(0) }
