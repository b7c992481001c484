// Package needtest skips a test that needs what is missing here, and fails the test where PYEXEC_TEST_REQUIRE names the missing
// thing.
//
// PYEXEC_TEST_REQUIRE is a list of words with commas between them. The words are in CONTRIBUTING.md.
package needtest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Words of PYEXEC_TEST_REQUIRE.
const (
	// Root is root's rights: other uids, mounts and namespaces.
	Root = "root"
	// Cgroup is control groups that this process may write, for memory too.
	Cgroup = "cgroup"
	// Box is the uv backend's sandbox (docs/sandbox.md).
	Box = "box"
	// Node is the program node.
	Node = "node"
)

// Required reports whether PYEXEC_TEST_REQUIRE names a word.
func Required(word string) bool {
	return slices.Contains(strings.FieldsFunc(os.Getenv("PYEXEC_TEST_REQUIRE"), func(r rune) bool { return r == ',' || r == ' ' }), word)
}

// Long skips a test that belongs to a long part of the suite (docs/testing.md), unless this run is one: PYEXEC_TEST_LONG=1. why says
// what the gate has in its place. A test that runs by the gate and is larger in a long part asks IsLong.
func Long(t testing.TB, why string) {
	t.Helper()
	if !IsLong() {
		t.Skipf("LONG (make test-long): %s", why)
	}
}

// IsLong reports whether this run is a long part of the suite.
func IsLong() bool { return os.Getenv("PYEXEC_TEST_LONG") == "1" }

// Need does nothing if have is true. Otherwise Need skips t, or fails t if PYEXEC_TEST_REQUIRE names word; why says what is
// missing, and may be empty.
func Need(t testing.TB, have bool, word, why string) {
	t.Helper()
	if have {
		return
	}
	if why == "" {
		why = "it is not here"
	}
	if Required(word) {
		t.Fatalf("%s is required by PYEXEC_TEST_REQUIRE and missing: %s", word, why)
	}
	t.Skipf("SKIPPED, %s is missing: %s", word, why)
}

// NeedRoot is Need for a test that only root can run.
func NeedRoot(t testing.TB) {
	t.Helper()
	Need(t, os.Geteuid() == 0, Root, "this process is not root")
}
