package uvbackend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/requirements"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// indexTime bounds the request to the package index.
const indexTime = 5 * time.Second

// Doctor examines this machine for a backend with this section of the configuration: the interpreters, uv, the index, and the
// limits that can be enforced. It creates the folders of the configuration and fills the caches in them. Every process that it
// starts ends before it returns. The end of ctx ends it.
func Doctor(ctx context.Context, section json.RawMessage) []backend.Finding {
	c, err := parseConfig("uv", section)
	if err == nil {
		err = c.checkUsers(ctx, "uv", thisHost())
	}
	if err != nil {
		return backend.ConfigFindings(err)
	}
	how := findMechanisms(c, filepath.Join(c.CacheDir, "mechanisms.json"))
	if err := errors.Join(makeFolders("uv", c), checkFolders("uv", c, how)); err != nil {
		return backend.ConfigFindings(err)
	}
	if err := c.checkIsolation("uv", how); err != nil {
		return backend.ConfigFindings(err)
	}
	b := &Backend{name: "uv", config: c, how: how, log: slog.New(slog.DiscardHandler)}
	found, groupErr := findGroups(ctx)
	groups, err := found.Make(fmt.Sprintf("%sdoctor-%d", groupPrefix, os.Getpid())) // what holds in it is what holds for programs
	if err != nil {
		groups, groupErr = nil, errors.Join(groupErr, err)
	}
	b.can, b.groupErr, b.boundsForks = promises(how, groups, c), groupErr, boundsForks(groups)
	if err := groups.Remove(); err != nil {
		return backend.ConfigFindings(err)
	}
	ids, err := b.uidPool()
	if err != nil {
		return backend.ConfigFindings(err)
	}
	b.equip(ids)
	if how.Box { // interpreters are asked in it
		claim, err := claimWork(ctx, c.WorkDir, "doctor")
		if err != nil {
			return backend.ConfigFindings(err)
		}
		if b.slots, err = newSlots(claim, how, nil, ids, probeSlots, nil, "", b.log); err != nil {
			claim.release()
			return backend.ConfigFindings(err)
		}
		defer b.slots.close()
	}
	b.search(ctx)
	list := pythonFindings(*b.inventory.Load())
	list = append(list, b.uvFinding(ctx), indexFinding(ctx, b.tool.index))
	list = append(list, b.limitFindings()...)
	return append(list, b.cacheFinding())
}

func pythonFindings(inv inventory) []backend.Finding {
	var list []backend.Finding
	if inv.fallback.Path == "" {
		list = append(list, backend.Error("python", fmt.Sprintf("no Python from 3.%d on can be used", oldestMinor), "install Python 3 (on Debian: apt install python3), or mend one of those below that cannot be used"))
	} else {
		list = append(list, backend.OK("python", fmt.Sprintf("Python %s at %s is the default", inv.fallback.Version, inv.fallback.Path)))
	}
	for _, minor := range inv.minors() {
		i := inv.byMinor[minor]
		list = append(list, backend.OK("python", fmt.Sprintf("Python %s: %s at %s", minor, i.Version, i.Path)))
	}
	for _, u := range inv.unreachable {
		list = append(list, backend.Warn("python", fmt.Sprintf("%s cannot be used: %s", u.Path, u.Why), u.Remedy))
	}
	return list
}

// uvFinding looks for uv. It does not fetch uv.
func (b *Backend) uvFinding(ctx context.Context) backend.Finding {
	program, err := b.tool.look(ctx)
	switch {
	case err != nil:
		return backend.Warn("uv", err.Error(), "")
	case program.path == "":
		return backend.Finding{
			Level: backend.LevelOK, Topic: "uv", Remedy: "install uv and put it on PATH to avoid the download",
			Message: "is not installed; version " + b.tool.pin.version + " will be fetched from the package index when the first requirement is installed",
		}
	}
	return backend.OK("uv", fmt.Sprintf("version %s at %s", program.version, program.path))
}

// indexFinding requests one page of the index, with the proxy settings of the machine. Any response of a server counts as success.
func indexFinding(ctx context.Context, x index) backend.Finding {
	ctx, cancel := context.WithTimeoutCause(ctx, indexTime, fmt.Errorf("no answer within %s", indexTime))
	defer cancel()
	fail := func(err error) backend.Finding {
		return backend.Warn("index", fmt.Sprintf("%s cannot be reached: %s; requirements that are not in the cache cannot be installed", x.shown, requirements.WithoutCredentials(err.Error())),
			"check the network, HTTPS_PROXY and SSL_CERT_FILE, or set backends.uv.index_url")
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
	return backend.OK("index", x.shown+" answers")
}

// limitFindings lists which limits are enforced, and a remedy for each that is not.
func (b *Backend) limitFindings() []backend.Finding {
	root, user := b.how.remedy(), "run as root to give each program a uid of its own"
	if b.config.Isolation == IsolationNone {
		root = "set backends.uv.isolation to auto"
		user = root
	}
	groups := thisGroupHost().remedy(b.groupErr)
	others := thisHost().subordinate(b.how.uids)
	list := []backend.Finding{
		backend.Check(b.how.Box, "files", "programs run in a sandbox: "+strings.Join(b.active(), ", "), "programs see the host's world-readable files: "+b.how.Why["box"], root),
		backend.Check(b.how.Setuid || b.how.Box, "user", b.userOf(), "programs run as this user: "+b.how.Why["setuid"], user),
		backend.Check(b.can.NetworkOff, "network", "can be kept from programs", "cannot be kept from programs: "+b.how.Why["network"], root),
		b.networkFinding(root),
		b.startFinding(),
		backend.Check(b.can.Memory, "memory", "memory_mb is enforced by control group", "memory_mb is not enforced: "+b.groupReason("memory"), groups),
		backend.Check(b.can.PIDs, "pids", "the number of processes is enforced", "the number of processes is not enforced: "+b.groupReason("pids"), groups),
		backend.Check(b.can.CPU, "cpu", "cpu_shares is enforced by control group", "cpu_shares is not enforced: "+b.groupReason("cpu"), groups),
		backend.Check(b.can.Disk, "disk", "disk_mb is enforced by a tmpfs", "disk_mb is not enforced: "+b.how.Why["tmpfs"], root),
	}
	for _, l := range b.how.Layers {
		if l.Missing != "" {
			list = append(list, backend.Warn(l.Name, "is not in force: "+l.Missing, "use a kernel that has it (docs/sandbox.md)"))
		}
	}
	if b.how.Setuid && len(others) > 0 {
		list = append(list, backend.Warn("user", "uids of "+b.how.uids.String()+" are subordinate uids of "+strings.Join(others, ", ")+": programs may reach files of their containers", "set backends.uv.run_as to a range that /etc/subuid gives to no user"))
	}
	return list
}

// networkFinding says what a program with a network reaches.
func (b *Backend) networkFinding(root string) backend.Finding {
	const topic = "way out"
	remedy := "set backends.uv.network to private"
	if b.config.Isolation == IsolationNone {
		remedy = root + ", and backends.uv.network to private"
	}
	switch {
	case b.config.Network == NetworkHost:
		return backend.Warn(topic, "programs with a network share the host's, loopback included", remedy)
	case b.privateNetwork():
		return backend.OK(topic, strings.Join(append([]string{"programs with a network reach public addresses"}, b.config.NetworkOpen...), ", "))
	}
	return backend.Warn(topic, "programs cannot have a network of their own, so network_disabled: false is refused: "+b.how.Why["way_out"],
		root+"; or set backends.uv.network to host (docs/network.md)")
}

// startFinding says how programs start. Programs with requirements cannot be forks if the sandbox hides their environments: a fork server
// has no such folder.
func (b *Backend) startFinding() backend.Finding {
	const topic = "start"
	fork := "programs are forks of an interpreter that has started"
	if b.config.PreimportLearned {
		fork += ", with the modules that most of them import"
	}
	const exec = "each program starts an interpreter: "
	const some = "; those with requirements start an interpreter: "
	private := privateFolder(b.config.CacheDir)
	switch {
	case b.config.Start == StartExec:
		return backend.OK(topic, exec+"backends.uv.start is exec")
	case !b.how.Box:
		return backend.OK(topic, exec+"there is no sandbox")
	case !b.boundsForks:
		return backend.OK(topic, fork+some+"no control group bounds memory and processes")
	case private != "":
		return backend.Warn(topic, fork+some+"cache_dir is below "+private+", which is private to each program", "set backends.uv.cache_dir to a folder that is not below "+private)
	}
	return backend.OK(topic, fork)
}

// privateFolder returns the private folder of programs in which dir lies, or "".
func privateFolder(dir string) string {
	for _, path := range []string{realPath(dir), dir} {
		for _, private := range sandbox.PrivateFolders() {
			if inside, err := filepath.Rel(private, path); err == nil && filepath.IsLocal(inside) {
				return private
			}
		}
	}
	return ""
}

// realPath returns path without links, or path itself if it cannot be resolved.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// userOf describes the user that programs run as.
func (b *Backend) userOf() string {
	if b.how.Setuid {
		return "programs run under uids of their own: " + b.how.uids.String()
	}
	return "programs run as this user, in a user namespace without its rights and files"
}

func (b *Backend) cacheFinding() backend.Finding {
	list, bytes := b.cache.entries()
	message := fmt.Sprintf("%d environments with %d MB of at most %d MB in %s", len(list), bytes>>20, b.config.CacheBytes>>20, b.config.CacheDir)
	if slices.ContainsFunc([]string{b.config.CacheDir, b.config.WorkDir}, func(dir string) bool { return !writable(dir) }) {
		return backend.Error("cache", b.config.CacheDir+" or "+b.config.WorkDir+" cannot be written", "set backends.uv.cache_dir and backends.uv.work_dir")
	}
	return backend.OK("cache", message)
}

func writable(dir string) bool {
	f, err := os.CreateTemp(dir, ".doctor-")
	if err != nil {
		return false
	}
	f.Close()
	return os.Remove(f.Name()) == nil
}
