package dockerbackend

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

var update = flag.Bool("update", false, "write the golden files")

// TestTheContainerIsWhatWeDecided compares each field of the daemon's request with the files in testdata.
func TestTheContainerIsWhatWeDecided(t *testing.T) {
	t.Parallel()
	p := place{
		Instance: "inst", Boot: "boot.1.2", Volume: "python-executor-runner-1-2", Hosts: "/volumes/runner/hosts", Network: "python-executor-net",
		Program: newProgram(nil, nil).argv(), NanoCPUs: 1_500_000_000,
	}
	limits := capacityOf(executor.Limits{MemoryBytes: 1 << 30, DiskBytes: 2 << 30, CPUShares: 512, PIDs: 256})
	now := time.Unix(1_700_000_000, 0)
	sentry := p
	sentry.Under = under{gvisor: true, vm: true}
	prepare := prepareSettings{timeout: time.Minute, memory: 2 << 30}
	volumes := imageInfo{ID: "sha256:image", Volumes: []string{"/data"}}
	for name, spec := range map[string]containerSpec{
		"sandbox":         sandboxSpec(p, class{Image: "sha256:image", DiskBytes: 2 << 30}, limits, nil, "name", now),
		"sandbox-network": sandboxSpec(p, class{Image: "sha256:image", DiskBytes: 64 << 20, Network: true, Runtime: "runsc"}, limits, []string{"/data", "/tmp", runnerFolder}, "name", now),
		"sandbox-session": sandboxSpec(p, class{Image: "sha256:image", DiskBytes: 2 << 30, Session: true}, limits, nil, "name", now),
		"sandbox-remote":  sandboxSpec(place{Instance: "inst", Volume: "v", Program: p.Program}, class{Image: "sha256:image", DiskBytes: 1 << 20}, limits, nil, "name", now),
		"sandbox-gvisor":  sandboxSpec(sentry, class{Image: "sha256:image", DiskBytes: 2 << 30, Runtime: "runsc"}, limits, nil, "name", now),
		"fill":            fillSpec(p, "sha256:image", p.Volume, "name", now),
		"commands":        preparationSpec(p, prepare, volumes, stage{command: []string{"/bin/sh", "-s"}, user: "0:0", network: "net", capabilities: commandCapabilities}, "name", now),
		"requirements":    preparationSpec(sentry, prepare, imageInfo{ID: "sha256:image"}, stage{command: []string{"python"}, user: user()}, "name", now),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, host := spec.request()
			golden(t, name, map[string]any{"config": config, "host": host})
		})
	}
	t.Run("update", func(t *testing.T) {
		t.Parallel()
		golden(t, "update", limits.request())
	})
}

// golden fails t unless value, as JSON, equals the file of that name in testdata.
func golden(t *testing.T, name string, value any) {
	t.Helper()
	raw, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.WriteFile(path, append(raw, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, expected := strings.Split(string(raw)+"\n", "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(expected)) {
		g, w := "", ""
		if i < len(got) {
			g = got[i]
		}
		if i < len(expected) {
			w = expected[i]
		}
		if g != w {
			t.Errorf("line %d is %q, want %q", i+1, g, w)
		}
	}
}

func TestTheNumberOfFilesIsBoundedWithTheSizeOfAFolder(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]string{
		1 << 20:  "nr_inodes=16384,",
		1 << 30:  "nr_inodes=262144,",
		64 << 30: "nr_inodes=1048576,",
	} {
		if got := tmpfs(bytes, "0700", true); !strings.Contains(got, want) {
			t.Errorf("%d bytes: %s, want %s", bytes, got, want)
		}
	}
}

func TestAVolumeIsCoveredOnce(t *testing.T) {
	t.Parallel()
	got := volumePaths(map[string]struct{}{"/data": {}, "/data/": {}, "data": {}, "/work/": {}, "/a/../b": {}, "/": {}})
	if want := []string{"/b", "/data", "/work"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	spec := sandboxSpec(place{}, class{DiskBytes: 1 << 20}, capacity{}, got, "name", time.Unix(0, 0))
	if spec.Tmpfs[workFolder] != tmpfs(1<<20, "0700", true) || len(spec.Tmpfs) != 4 {
		t.Errorf("%v", spec.Tmpfs)
	}
}
