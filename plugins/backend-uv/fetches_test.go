package uvbackend

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// untouched is a port of an address of this host that nobody may connect to.
func untouched(t *testing.T, address string) (endpoint string) {
	t.Helper()
	l, err := net.Listen("tcp4", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The first connection that waits is this one, so no other came.
		own, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		first, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		if first.RemoteAddr().String() != own.LocalAddr().String() {
			t.Errorf("somebody connected to %s", l.Addr())
		}
		l.Close()
	})
	return l.Addr().String()
}

// TestAPageOfTheIndexLeadsToPublicAddressesOnly: the index is reached on loopback, because the configuration names it.
func TestAPageOfTheIndexLeadsToPublicAddressesOnly(t *testing.T) {
	b, w := indexed(t, nil)
	other := untouched(t, "127.0.0.1")
	w.links = map[string]string{
		"plain":  "http://" + other + "/plain-1.0-py3-none-any.whl",
		"secure": "https://" + other + "/secure-1.0-py3-none-any.whl",
		"named":  "https://localhost:1/named-1.0-py3-none-any.whl",
	}
	for name, link := range w.links {
		result, _ := run(t, b, executor.Spec{Code: "print(1)", Requirements: name})
		f := result.Failure
		if f == nil || f.Code != executor.Invalid || f.Phase != executor.PhasePrepare || f.Field != "requirements_txt" || !strings.Contains(f.Message, "has no public address") {
			t.Errorf("%s: %+v", link, f)
		}
	}
	succeeds(t, b, executor.Spec{Code: probeProgram, Requirements: "pyexec-probe"})
}

// builtSource is a source distribution whose build tries to connect, and fails with what came of it.
func builtSource(t *testing.T, name string, addresses ...string) []byte {
	t.Helper()
	backend := fmt.Sprintf(`
import os, socket, sys
def build_wheel(*args, **more):
    for address in %q.split():
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=20).close()
            print("CONNECTED", address, file=sys.stderr)
        except OSError as e:
            print("refused", address, file=sys.stderr)
    print("proxies", sorted(k for k in os.environ if k.lower().endswith("_proxy") and os.environ[k]), file=sys.stderr)
    sys.exit("tried all")
`, strings.Join(addresses, " "))
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	a := tar.NewWriter(z)
	for file, text := range map[string]string{
		"pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = \"tries\"\nbackend-path = [\".\"]\n[project]\nname = \"" + name + "\"\nversion = \"1.0\"\n",
		"tries.py":       backend,
		"PKG-INFO":       "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n",
	} {
		if err := errors.Join(a.WriteHeader(&tar.Header{Name: name + "-1.0/" + file, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg})); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(a.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestTheCodeOfABuildHasTheNetworkOfPrograms: it reaches neither the host's loopback nor its own addresses, also without a proxy.
func TestTheCodeOfABuildHasTheNetworkOfPrograms(t *testing.T) {
	b, w := indexed(t, map[string]any{"allow_builds": true})
	needtest.Need(t, b.how.WayOut, needtest.Box, b.how.Why["way_out"])
	tries := []string{untouched(t, "127.0.0.1")}
	if own := ownAddress(); own != "" {
		tries = append(tries, untouched(t, own))
	}
	w.addFile("tries", "tries-1.0.tar.gz", builtSource(t, "tries", tries...))
	result, _ := run(t, b, executor.Spec{Code: "print(1)", Requirements: "tries"})
	f := result.Failure
	if f == nil || !strings.Contains(f.Message, "tried all") || strings.Contains(f.Message, "CONNECTED") {
		t.Fatalf("%+v", f)
	}
	for _, address := range tries {
		if !strings.Contains(f.Message, "refused "+address) {
			t.Errorf("%s was not tried: %s", address, f.Message)
		}
	}
}
