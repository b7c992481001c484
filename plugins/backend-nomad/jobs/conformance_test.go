package jobs

import (
	"archive/zip"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/backendtest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
)

// shares are parts of the law that run at the same time. A job takes a second, most of which is waiting.
const shares = 8

// TestConformance checks the law with a real Nomad. The gate leaves out a rule that takes a job for each bad name, because the runner refuses
// these, and one about goroutines, which the package's other tests show, too.
func TestConformance(t *testing.T) {
	c := nomadtest.Shared(t)
	options := section(t, c, func(c *Config) { c.Prepare.IndexURL = wheels(t) })
	backendtest.RunShares(t, shares, backendtest.AroundTheRunner("BE-55", "BE-62"), func(t *testing.T, _ int) backendtest.Harness { return law(t, c, options) })
}

// ofMemory are the rules about the bounds of memory and of folders, which depend on Config.Work.
var ofMemory = []string{"BE-33", "BE-34", "BE-39", "BE-217"}

// TestFoldersInMemoryAreBounded checks the law with work: memory.
func TestFoldersInMemoryAreBounded(t *testing.T) {
	c := nomadtest.Shared(t)
	h := law(t, c, section(t, c, func(c *Config) { c.Work = WorkInMemory }))
	h.Only = ofMemory
	backendtest.Run(t, h)
}

// law returns the harness of an installation. The wire has the lanes of docker and of the fake: this backend has nothing of its own there.
func law(t *testing.T, c *nomadtest.Cluster, options json.RawMessage) backendtest.Harness {
	dir := t.TempDir()
	instance := t.Name() + "-" + rand.Text()
	var last *Backend
	start := func(t *testing.T) executor.Backend {
		b, err := open(plugin.Configure{Name: "nomad", Instance: instance, DataDir: dir, Options: options})
		if err != nil {
			t.Fatal(err)
		}
		last = b
		return b
	}
	t.Cleanup(func() {
		for _, id := range allocations(t, c, instance) {
			t.Log("allocation", id)
		}
	})
	return backendtest.Harness{
		New: start,
		Abandon: func(t *testing.T) executor.Backend {
			_ = last.Close()
			next := start(t)
			closing := last
			t.Cleanup(func() {
				if err := closing.Close(); err != nil {
					t.Error(err)
				}
			})
			return next
		},
		Options: backendtest.Options{
			Image:       dockertest.Python(t),
			Requirement: backendtest.Requirement{Text: "pyexec-probe<2", Import: "pyexec_probe", Version: "1.2.3", Resolved: "pyexec-probe==1.2.3"},
			Leftovers:   func() []string { return leftovers(t, c, instance) },
		},
	}
}

// allocations lists the allocations of an installation.
func allocations(t testing.TB, c *nomadtest.Cluster, instance string) (found []string) {
	t.Helper()
	list, _, err := c.API().Jobs().ListOptions(&api.JobListOptions{Fields: &api.JobListFields{Meta: true}}, &api.QueryOptions{Prefix: jobPrefix})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range list {
		if j.Meta[metaInstance] != instance {
			continue
		}
		allocs, _, err := c.API().Jobs().Allocations(j.ID, true, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range allocs {
			found = append(found, a.ID+" of "+j.ID+": "+a.ClientStatus)
		}
	}
	return found
}

// leftovers lists what does not end: jobs and containers.
func leftovers(t testing.TB, c *nomadtest.Cluster, instance string) []string {
	return awaittest.None(func() []string {
		return slices.Concat(running(t, c, instance), dockertest.Containers(t, labelInstance+"="+instance))
	})
}

// wheels serves a package index with pyexec-probe, and returns its address for containers on the bridge.
func wheels(t *testing.T) string {
	t.Helper()
	files := map[string][]byte{
		"pyexec_base-1.0-py3-none-any.whl":    wheel(t, "pyexec_base", "1.0", "pyexec_base.py", "", ""),
		"pyexec_probe-1.2.3-py3-none-any.whl": wheel(t, "pyexec_probe", "1.2.3", "pyexec_probe/__init__.py", "import pyexec_base\n__version__ = '1.2.3'\n", "pyexec-base>=1"),
		"pyexec_probe-2.0-py3-none-any.whl":   wheel(t, "pyexec_probe", "2.0", "pyexec_probe/__init__.py", "import pyexec_base\n__version__ = '2.0'\n", "pyexec-base>=1"),
	}
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		_, path, _ := strings.Cut(strings.Trim(in.URL.Path, "/"), "/")
		project, file, _ := strings.Cut(path, "/")
		if content, ok := files[file]; ok {
			_, _ = out.Write(content)
			return
		}
		found := false
		out.Header().Set("Content-Type", "text/html")
		for name, content := range files {
			if strings.HasPrefix(name, strings.ReplaceAll(project, "-", "_")+"-") {
				found = true
				fmt.Fprintf(out, "<a href=\"/simple/%s/%s#sha256=%x\">%s</a>\n", project, name, sha256.Sum256(content), name)
			}
		}
		if !found {
			http.NotFound(out, in)
		}
	}))
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return fmt.Sprintf("http://%s:%d/simple", gateway(t), listener.Addr().(*net.TCPAddr).Port) //nolint:forcetypeassert // of a TCP listener
}

// wheel returns a wheel with one file.
func wheel(t *testing.T, module, version, file, text, requires string) []byte {
	t.Helper()
	info := fmt.Sprintf("%s-%s.dist-info/", module, version)
	meta := fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", module, version)
	if requires != "" {
		meta += "Requires-Dist: " + requires + "\n"
	}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range [][2]string{
		{file, text}, {info + "METADATA", meta}, {info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", file + ",,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	} {
		w, err := z.Create(f[0])
		if err == nil {
			_, err = w.Write([]byte(f[1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// gateway returns this machine's address on the bridge of the tests' Docker.
func gateway(t *testing.T) string {
	t.Helper()
	cli, err := client.NewClientWithOpts(client.WithHost(dockertest.Host(t)), client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close() //nolint:errcheck // it never fails
	bridge, err := cli.NetworkInspect(t.Context(), "bridge", network.InspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range bridge.IPAM.Config {
		if p, err := netip.ParsePrefix(c.Subnet); err == nil && p.Addr().Is4() {
			return p.Masked().Addr().Next().String()
		}
	}
	t.Fatalf("the bridge has no IPv4 network: %v", bridge.IPAM.Config)
	return ""
}
