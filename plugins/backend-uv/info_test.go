package uvbackend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// wholeBackend returns a backend of a machine that can enforce everything, without root.
func wholeBackend(change func(b *Backend)) *Backend {
	b := &Backend{
		name: "mine", config: Config{Isolation: IsolationAuto, Network: NetworkPrivate, Start: StartFork},
		how: mechanisms{User: true, Tmpfs: true, WayOut: true, Box: true, Why: map[string]string{}},
		can: executor.Capabilities{
			NetworkOff: true, NetworkOn: true, Memory: true, CPU: true, PIDs: true, Disk: true, HostDirectories: true,
			Languages: []executor.Language{executor.LanguagePython},
		},
	}
	if change != nil {
		change(b)
	}
	return b
}

func TestWarningsNameWhatIsNotEnforced(t *testing.T) {
	t.Parallel()
	const (
		memory = "files that a program writes are in memory"
		open   = "programs see the host's world-readable files"
	)
	for _, c := range []struct {
		name   string
		change func(b *Backend)
		want   []string
	}{
		{"everything is enforced", nil, []string{memory}},
		{"no box", func(b *Backend) { b.how.Box = false }, []string{open, "may change its files: ", memory}},
		{"no box, with uids", func(b *Backend) { b.how.Box, b.how.Setuid = false, true }, []string{open, memory}},
		{"no filter", func(b *Backend) { b.how.Layers = []sandbox.Layer{{Name: "seccomp", Missing: "no"}} }, []string{"incomplete: seccomp: no", memory}},
		{"the host's network", func(b *Backend) { b.config.Network = NetworkHost }, []string{"this server included", memory}},
		{"the host's network, with uids", func(b *Backend) { b.config.Network, b.how.Setuid = NetworkHost, true }, []string{"except for this server", memory}},
		{"no network namespace", func(b *Backend) { b.can.NetworkOff = false }, []string{"although it is off by default", "this server included", memory}},
		{"no isolation", func(b *Backend) { b.config.Isolation, b.how.Box = IsolationNone, false }, []string{open, "with all its rights: backends.uv.isolation is none", memory}},
		{"no memory group", func(b *Backend) { b.can.Memory = false }, []string{"memory_mb is not enforced"}},
		{"no CPU group", func(b *Backend) { b.can.CPU = false }, []string{"cpu_shares is not enforced", memory}},
		{"no process group", func(b *Backend) { b.can.PIDs = false }, []string{"pids is not enforced", memory}},
		{"no tmpfs", func(b *Backend) { b.can.Disk = false }, []string{"disk_mb is not enforced", "programs share the host's /tmp"}},
		{"builds", func(b *Backend) { b.config.AllowBuilds = true }, []string{memory, "backends.mine.allow_builds is true"}},
		{"languages", func(b *Backend) { b.can.Languages = append(b.can.Languages, executor.LanguageShell) }, []string{memory, "run in sessions only"}},
	} {
		got := wholeBackend(c.change).warnings()
		if len(got) != len(c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(got[i], want) {
				t.Errorf("%s: got %q, want %q", c.name, got[i], want)
			}
		}
	}
}

func TestTheReasonOfAMissingControlGroupIsItsOwn(t *testing.T) {
	t.Parallel()
	b := wholeBackend(func(b *Backend) {
		b.can = executor.Capabilities{}
		b.groupErr = errors.New("no v2\ncontrol group memory: read only\ncontrol group cpu: not there\nin all no groups")
		b.how.Layers = []sandbox.Layer{{Name: "landlock", Version: 3}, {Name: "seccomp", Version: 2, Missing: "no filter"}}
	})
	found := map[string]string{}
	for _, f := range b.limitFindings() {
		found[f.Topic] = f.Message
		if f.Level == backend.LevelWarn && f.Remedy == "" {
			t.Errorf("%+v has no remedy", f)
		}
	}
	for topic, want := range map[string]string{
		"memory": "control group memory: read only", "cpu": "control group cpu: not there", "pids": "in all no groups", "seccomp": "is not in force: no filter",
	} {
		if !strings.Contains(found[topic], want) {
			t.Errorf("%s: %q, want %q", topic, found[topic], want)
		}
	}
	off := strings.Join(b.notInForce(), "\n")
	for _, want := range []string{
		"seccomp: no filter", "cgroup memory: control group memory: read only", "cgroup pids: in all no groups", "cgroup cpu: control group cpu: not there",
	} {
		if !strings.Contains(off, want) {
			t.Errorf("not in force are %s, want %s", off, want)
		}
	}
	if on := b.active(); !slices.Contains(on, "landlock 3") || slices.Contains(on, "seccomp 2") {
		t.Errorf("in force are %q", on)
	}
	b.config.Network, b.how.WayOut = NetworkHost, false
	if off := b.notInForce(); slices.ContainsFunc(off, func(s string) bool { return strings.HasPrefix(s, "private network") }) {
		t.Errorf("without a private network in the configuration %q are not in force", off)
	}
	if got := (&Backend{}).groupReason("cpu"); got != "no control group with the controller cpu is delegated to this process" {
		t.Errorf("without an error: %q", got)
	}
}

func TestWhatAMachinePromisesFollowsFromItsMechanisms(t *testing.T) {
	t.Parallel()
	groups := func(names ...string) sandbox.Cgroups {
		g := sandbox.Cgroups{}
		for _, n := range names {
			g[n] = "/" + n
		}
		return g
	}
	for _, c := range []struct {
		name   string
		how    mechanisms
		groups sandbox.Cgroups
		want   string
	}{
		{"nothing", mechanisms{}, nil, "none directories"},
		{"root", mechanisms{Setuid: true, Network: true, Tmpfs: true, Box: true, WayOut: true}, groups("memory", "pids", "cpu"), "namespaces off on memory disk cpu pids"},
		{"root without groups", mechanisms{Setuid: true, Network: true}, nil, "none off pids"},
		{"a user", mechanisms{User: true, Tmpfs: true, Box: true}, groups("pids"), "namespaces off disk pids directories"},
		{"groups alone", mechanisms{}, groups("cpu"), "none cpu directories"},
	} {
		can := promises(c.how, c.groups, Config{Network: NetworkPrivate})
		got := string(can.Isolation)
		for _, p := range []struct {
			name string
			can  bool
		}{
			{"off", can.NetworkOff}, {"on", can.NetworkOn}, {"memory", can.Memory}, {"disk", can.Disk}, {"cpu", can.CPU}, {"pids", can.PIDs},
			{"directories", can.HostDirectories},
		} {
			if p.can {
				got += " " + p.name
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if !promises(mechanisms{}, nil, Config{Network: NetworkHost}).NetworkOn {
		t.Error("the host's network is not promised")
	}
}

func TestInfoCountsWhatTheBackendHas(t *testing.T) {
	t.Parallel()
	c := testCache(t, 1<<20)
	fill(t, c, "env", 1000, 0)
	c.hits.Store(3)
	c.misses.Store(2)
	c.evicted.Store(5)
	one, two, three := &slot{}, &slot{}, &slot{}
	b := wholeBackend(func(b *Backend) {
		b.cache, b.slots = c, &slots{all: map[*slot]struct{}{one: {}, two: {}, three: {}}, idle: []*slot{one}}
		b.how.Setuid, b.how.uids = true, uids{70000, 70039}
		b.config.WritableDirectories, b.config.AllowBuilds, b.config.CacheBytes = []string{"/srv/a", "/srv/b"}, true, 1<<20
		b.tool = newUVTool("", places{}, index{shown: "https://index.example"}, nil, slog.New(slog.DiscardHandler))
	})
	b.slots.started.Store(7)
	b.slots.died.Store(4)
	b.inventory.Store(&inventory{unreachable: []unreachable{{Path: "/closed/python3", Why: "it is closed"}, {Path: "/other/python3", Why: "it is broken"}}})
	info, err := b.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"slots": 3, "slots_busy": 2, "slots_started_total": 7, "slots_died_total": 4, "cache_environments": 1, "cache_bytes": 1000, "cache_limit_bytes": 1 << 20,
		"cache_hits_total": 3, "cache_builds_total": 2, "cache_evicted_total": 5, "cache_rebuilt_total": 0, "sessions": 0,
	} {
		if got, ok := info.Metrics[name]; !ok || got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for name, want := range map[string]string{
		"host_directories": "read-only, except below /srv/a, /srv/b", "builds": "allowed", "index": "https://index.example",
		"run_as": "70000-70039", "uv": "not needed so far",
		"unreachable_1": "/closed/python3: it is closed", "unreachable_2": "/other/python3: it is broken", "network": "private, to public addresses",
	} {
		if got := info.Details[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if info.Healthy || !strings.Contains(info.Message, "no Python from 3."+strconv.Itoa(oldestMinor)) || info.Capacity != 35 {
		t.Errorf("healthy: %v, message %q, capacity %d", info.Healthy, info.Message, info.Capacity)
	}
	b.inventory.Store(&inventory{fallback: interpreter{Path: "/usr/bin/python3"}})
	if info, err = b.Info(t.Context()); err != nil || !info.Healthy || info.Message != "" {
		t.Errorf("with a Python: %v, %q, %v", info.Healthy, info.Message, err)
	}
}

func TestTheDoctorNamesWhatMustBeMended(t *testing.T) {
	t.Parallel()
	pythons := pythonFindings(inventory{unreachable: []unreachable{{Path: "/x", Why: "closed", Remedy: "open it"}}})
	if len(pythons) != 2 || pythons[0].Level != backend.LevelError || pythons[1].Level != backend.LevelWarn || pythons[1].Remedy != "open it" {
		t.Errorf("without a Python: %+v", pythons)
	}
	for network, want := range map[string]string{NetworkHost: "loopback included", NetworkPrivate: "reach public addresses, 10.0.0.0/8"} {
		b := wholeBackend(func(b *Backend) { b.config.Network, b.config.NetworkOpen = network, []string{"10.0.0.0/8"} })
		shared := network == NetworkHost
		if f := b.networkFinding("be root"); !strings.Contains(f.Message, want) || (f.Level == backend.LevelWarn) != shared || (f.Remedy != "") != shared {
			t.Errorf("%s: %+v", network, f)
		}
	}
	c := testCache(t, 1<<20)
	dir, none := t.TempDir(), filepath.Join(t.TempDir(), "none")
	for _, set := range [][2]string{{dir, none}, {none, dir}, {dir, dir}} {
		b := &Backend{cache: c, config: Config{CacheDir: set[0], WorkDir: set[1]}}
		if f := b.cacheFinding(); (f.Level == backend.LevelError) != (set[0] != set[1]) {
			t.Errorf("the folders %s: %+v", set, f)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".doctor-*")); len(left) > 0 {
		t.Errorf("leftovers of the doctor: %q", left)
	}
	tool := newUVTool(t.TempDir(), places{path: dir}, index{}, func(context.Context) []string { return nil }, slog.New(slog.DiscardHandler))
	if f := (&Backend{tool: tool}).uvFinding(t.Context()); f.Level != backend.LevelOK || !strings.Contains(f.Message, tool.pin.version) || f.Remedy == "" {
		t.Errorf("without uv: %+v", f)
	}
}

// TestAnyAnswerOfTheIndexIsOne matters because an index need not have a page of the project pip.
func TestAnyAnswerOfTheIndexIsOne(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- fmt.Sprint(r.Method, " ", r.URL.Path)
		http.NotFound(w, r)
	}))
	f := indexFinding(t.Context(), index{shown: server.URL + "/simple/"})
	server.Close()
	if got := <-asked; f.Level != backend.LevelOK || got != "HEAD /simple/pip/" {
		t.Errorf("asked %s: %+v", got, f)
	}
	if f = indexFinding(t.Context(), index{shown: server.URL + "/simple"}); f.Level != backend.LevelWarn || f.Remedy == "" || !strings.Contains(f.Message, server.URL) {
		t.Errorf("without a server: %+v", f)
	}
}
