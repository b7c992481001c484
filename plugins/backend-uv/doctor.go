package uvbackend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
	"github.com/python-executor/python-executor/core/runner"
)

// Level says how much a Finding matters.
type Level string

// The levels.
const (
	// LevelOK: works.
	LevelOK Level = "ok"
	// LevelWarn: works, with less than there could be.
	LevelWarn Level = "warn"
	// LevelError: does not work.
	LevelError Level = "error"
)

// Finding is one thing that Doctor found.
type Finding struct {
	Level Level `json:"level"`
	// Topic is what it is about: "python", "uv", "network", …
	Topic   string `json:"topic"`
	Message string `json:"message"`
	// Remedy is what to do about it; empty where nothing is to do.
	Remedy string `json:"remedy,omitempty"`
}

// indexTime bounds the question whether the package index is there.
const indexTime = 5 * time.Second

// Doctor looks at what a backend with configuration c would find on this machine: interpreters, uv, the index, what can
// be enforced. It makes the folders of c and fills the caches in them, and starts nothing that outlives it. ctx bounds it.
func Doctor(ctx context.Context, c Config) []Finding {
	if err := c.Validate(); err != nil {
		return configFindings(err)
	}
	if err := c.CheckUsers(ctx); err != nil {
		return configFindings(err)
	}
	c = c.withDefaults()
	how := findMechanisms(c, filepath.Join(c.CacheDir, "mechanisms.json"))
	if err := errors.Join(makeFolders("uv", c), checkFolders("uv", c, how)); err != nil {
		return configFindings(err)
	}
	b := &Backend{name: "uv", config: c, how: how, log: slog.New(slog.DiscardHandler)}
	found, groupErr := runner.FindCgroups()
	b.can, b.groupErr = promises(how, found, c), groupErr
	ids, err := b.uidPool()
	if err != nil {
		return configFindings(err)
	}
	b.equip(ids)
	b.search(ctx)
	list := pythonFindings(*b.inventory.Load())
	list = append(list, b.uvFinding(ctx), indexFinding(ctx, b.tool.index))
	list = append(list, b.limitFindings()...)
	return append(list, b.cacheFinding())
}

func configFindings(err error) []Finding {
	if e, ok := errors.AsType[*executor.Error](err); ok && len(e.Fields) > 0 {
		var list []Finding
		for _, f := range e.Fields {
			list = append(list, Finding{LevelError, "configuration", f.Field + ": " + f.Message, "correct " + f.Field})
		}
		return list
	}
	return []Finding{{LevelError, "configuration", err.Error(), ""}}
}

func pythonFindings(inv inventory) []Finding {
	var list []Finding
	if inv.fallback.Path == "" {
		list = append(list, Finding{LevelError, "python", fmt.Sprintf("no Python from 3.%d on can be used", oldestMinor), "install Python 3 (on Debian: apt install python3), or see below what is out of reach"})
	} else {
		list = append(list, Finding{LevelOK, "python", fmt.Sprintf("Python %s at %s runs what asks for no version", inv.fallback.Version, inv.fallback.Path), ""})
	}
	for _, minor := range inv.minors() {
		i := inv.byMinor[minor]
		list = append(list, Finding{LevelOK, "python", fmt.Sprintf("Python %s: %s at %s", minor, i.Version, i.Path), ""})
	}
	for _, u := range inv.unreachable {
		list = append(list, Finding{LevelWarn, "python", fmt.Sprintf("%s cannot be used: %s", u.Path, u.Why), u.Remedy})
	}
	return list
}

// uvFinding looks for uv and fetches none.
func (b *Backend) uvFinding(ctx context.Context) Finding {
	program, err := b.tool.look(ctx)
	switch {
	case err != nil:
		return Finding{LevelWarn, "uv", err.Error(), ""}
	case program.path == "":
		return Finding{LevelOK, "uv", "is not here; version " + b.tool.pin.version + " will be fetched from the package index when the first requirement is installed", "install uv and put it on PATH to save that"}
	}
	return Finding{LevelOK, "uv", fmt.Sprintf("version %s at %s", program.version, program.path), ""}
}

// indexFinding asks the index for its simplest page, as the machine's settings say. Any answer of a server counts.
func indexFinding(ctx context.Context, x index) Finding {
	ctx, cancel := context.WithTimeoutCause(ctx, indexTime, fmt.Errorf("no answer within %s", indexTime))
	defer cancel()
	fail := func(err error) Finding {
		return Finding{
			LevelWarn, "index", fmt.Sprintf("%s cannot be reached: %s; requirements that are not in the cache cannot be installed", x.shown, requirements.WithoutCredentials(err.Error())),
			"check the network, HTTPS_PROXY and SSL_CERT_FILE, or set backends.uv.index_url",
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, strings.TrimSuffix(x.shown, "/")+"/pip/", nil)
	if err != nil {
		return fail(err)
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fail(err)
	}
	answer.Body.Close()
	return Finding{LevelOK, "index", x.shown + " answers", ""}
}

// limitFindings says what is enforced and what is missing.
func (b *Backend) limitFindings() []Finding {
	root := "run as root, or enable unprivileged user namespaces"
	if os.Geteuid() == 0 {
		root = "give this process CAP_SYS_ADMIN, which the container or service it runs in has taken away"
	}
	groups := "run as root, or where a writable cgroup with the controllers memory, pids and cpu is delegated to this user"
	checks := []struct {
		topic  string
		on     bool
		good   string
		bad    string
		remedy string
	}{
		{"user", b.how.Setuid, "programs run under uids of their own: " + b.how.uids.String(), "programs run as this user: " + b.how.Why["setuid"], "run as root to give each program a uid of its own"},
		{"network", b.can.NetworkOff, "can be kept from programs", "cannot be kept from programs: " + b.how.Why["network"], root},
		{"memory", b.can.Memory, "memory_mb is enforced by control group", "memory_mb is not enforced: " + b.groupReason("memory"), groups},
		{"pids", b.can.PIDs, "the number of processes is enforced", "the number of processes is not enforced: " + b.groupReason("pids"), groups},
		{"cpu", b.can.CPU, "cpu_shares is enforced by control group", "cpu_shares is not enforced: " + b.groupReason("cpu"), groups},
		{"disk", b.can.Disk, "disk_mb is enforced by a tmpfs", "disk_mb is not enforced: " + b.how.Why["tmpfs"], root},
	}
	others := thisHost().subordinate(b.how.uids)
	list := []Finding{{LevelWarn, "files", "programs see the host's world-readable files: there is no file sandbox in this version", "do not run untrusted code where world-readable files are secret"}}
	if b.how.Setuid && len(others) > 0 {
		list = append(list, Finding{LevelWarn, "user", "uids of " + b.how.uids.String() + " are subordinate uids of " + strings.Join(others, ", ") + ": programs may reach files of their containers", "set backends.uv.run_as to a range that /etc/subuid gives to nobody"})
	}
	for _, c := range checks {
		if c.on {
			list = append(list, Finding{LevelOK, c.topic, c.good, ""})
		} else {
			list = append(list, Finding{LevelWarn, c.topic, c.bad, c.remedy})
		}
	}
	return list
}

func (b *Backend) cacheFinding() Finding {
	list, bytes := b.cache.entries()
	message := fmt.Sprintf("%d environments with %d MB of at most %d MB in %s", len(list), bytes>>20, b.config.CacheBytes>>20, b.config.CacheDir)
	if slices.ContainsFunc([]string{b.config.CacheDir, b.config.WorkDir}, func(dir string) bool { return !writable(dir) }) {
		return Finding{LevelError, "cache", b.config.CacheDir + " or " + b.config.WorkDir + " cannot be written", "set backends.uv.cache_dir and backends.uv.work_dir"}
	}
	return Finding{LevelOK, "cache", message, ""}
}

func writable(dir string) bool {
	f, err := os.CreateTemp(dir, ".doctor-")
	if err != nil {
		return false
	}
	f.Close()
	return os.Remove(f.Name()) == nil
}
