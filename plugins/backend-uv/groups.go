package uvbackend

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// controllers are those of control groups that limits need.
func controllers() []string { return []string{"memory", "pids", "cpu"} }

// finding is held while this process looks for its control groups, and may move to others.
var finding sync.Mutex

// findGroups returns the folders in which this process may make groups. Where an ordinary user has none in which all limits hold, it
// asks the systemd of this user for some, and this process moves there. The error tells what is missing and why.
func findGroups(ctx context.Context) (sandbox.Cgroups, error) {
	finding.Lock()
	defer finding.Unlock()
	found, err := sandbox.FindCgroups()
	if os.Geteuid() == 0 || sandbox.OwnGroup() == "" || isDelegated(found) {
		return found, err
	}
	if _, errScope := thisUserSystemd().enterScope(ctx); errScope != nil {
		return found, errors.Join(err, errScope)
	}
	return sandbox.FindCgroups()
}

// isDelegated reports whether all limits hold in groups below found, and systemd leaves those groups alone. It manages what is in a slice
// itself, and takes controllers away that its own units do not need.
func isDelegated(found sandbox.Cgroups) bool {
	dir := found["unified"]
	if dir == "" || strings.HasSuffix(dir, ".slice") {
		return false
	}
	probe, err := found.Make(fmt.Sprintf("pyexec-probe-%d", os.Getpid()))
	if err != nil {
		return false
	}
	missing := slices.ContainsFunc(controllers(), func(c string) bool { return !probe.Enforces(c) })
	return probe.Remove() == nil && !missing
}

// placesOf returns where processes of this user's backends have their groups, if found is the place of this one: found, and the
// scopes beside it.
func placesOf(found sandbox.Cgroups) []sandbox.Cgroups {
	places := []sandbox.Cgroups{found}
	dir := found["unified"]
	if name := filepath.Base(dir); strings.HasPrefix(name, groupPrefix) && strings.HasSuffix(name, ".scope") {
		beside, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), groupPrefix+"*.scope")) // the pattern is good
		for _, other := range beside {
			if other != dir {
				places = append(places, sandbox.Cgroups{"unified": other})
			}
		}
	}
	return places
}

// groupHost is what remedies for missing control groups depend on.
type groupHost struct {
	root      bool
	user      string
	container bool // this process is in one that does not boot systemd
	v2        bool // the controllers are those of v2
	systemd   bool // systemd has booted this machine
}

func thisGroupHost() groupHost {
	exists := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	h := groupHost{root: os.Geteuid() == 0, user: "USER", v2: sandbox.OwnGroup() != "", systemd: exists("/run/systemd/system")}
	if u, err := user.Current(); err == nil {
		h.user = u.Username
	}
	h.container = !h.systemd && (exists("/.dockerenv") || exists("/run/.containerenv") || os.Getenv("KUBERNETES_SERVICE_HOST") != "" || os.Getenv("container") != "")
	return h
}

// remedy returns what gives a backend on h its control groups. err tells why it has none.
func (h groupHost) remedy(err error) string {
	const more = " (docs/sandbox.md, Control groups)"
	switch {
	case h.container || errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission) && h.root:
		return "this container may not make control groups: start it with --privileged, or bound all programs together by the container's own limits, " +
			"such as docker run --memory 2g --pids-limit 500 --cpus 2" + more
	case h.root:
		return "mount the controllers memory, pids and cpu at /sys/fs/cgroup" + more
	case !h.v2:
		return "run as root, or boot with control groups of version 2: systemd.unified_cgroup_hierarchy=1 on the kernel's command line" + more
	case !h.systemd:
		return "run as root, or let root make a control group for " + h.user + " and start this program in it, because there is no systemd to ask" + more
	case errors.Is(err, errNoSystemd):
		return "as root: loginctl enable-linger " + h.user + ", which starts the systemd of this user; on Debian it needs the package libpam-systemd" + more
	case err != nil:
		return "run as root, or under systemd-run --user --scope -p Delegate=yes" + more
	}
	return "as root: mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\\nDelegate=cpu memory pids\\n' > " +
		"/etc/systemd/system/user@.service.d/delegate.conf && systemctl daemon-reload; then log in again" + more
}
