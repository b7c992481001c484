package tests

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

// traced is a line of Go's trace of initialization: the bytes that a package allocates.
var traced = regexp.MustCompile(`init github\.com/santhosh-tekuri/jsonschema\S* .* (\d+) bytes`)

// TestTheBinaryCompilesNoSchemaWhenItStarts checks that make build has taken the changed library (tools/lazy.sh). Unchanged, it allocates 1.7 MB.
func TestTheBinaryCompilesNoSchemaWhenItStarts(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(binary, "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	found := traced.FindSubmatch(out)
	if err != nil || found == nil {
		t.Fatalf("no trace: %v\n%s", err, out)
	}
	if n, err := strconv.Atoi(string(found[1])); err != nil || n > 100_000 {
		t.Errorf("it compiles schemas: %s", found[0])
	}
}
