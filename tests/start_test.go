package tests

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

// traced is a line of Go's trace of initialization: a package that tools/lazy.sh changes, and the bytes that it allocates.
var traced = regexp.MustCompile(`init github\.com/(santhosh-tekuri/jsonschema|distribution/reference)\S* .* (\d+) bytes`)

// described is a package that only the reflection of gRPC needs. tools/lazy.sh leaves that out of go-plugin.
const described = "init google.golang.org/protobuf/reflect/protodesc "

// TestTheBinaryCompilesNothingOfItsLibrariesWhenItStarts checks that make build has taken the changed libraries. Unchanged, two of them
// allocate 1.7 MB and 0.4 MB.
func TestTheBinaryCompilesNothingOfItsLibrariesWhenItStarts(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(binary, "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	found := traced.FindAllSubmatch(out, -1)
	if err != nil || len(found) < 2 {
		t.Fatalf("no trace of both: %v\n%s", err, out)
	}
	if bytes.Contains(out, []byte(described)) {
		t.Errorf("it has the descriptors of gRPC's reflection: %s", described)
	}
	for _, f := range found {
		if n, err := strconv.Atoi(string(f[2])); err != nil || n > 100_000 {
			t.Errorf("it compiles what it may not need: %s", f[0])
		}
	}
}

func TestTheBinaryIsStatic(t *testing.T) {
	t.Parallel()
	f, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("it has a %s: it needs a loader and libraries of the machine", p.Type)
		}
	}
}
