package uvbackend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/requirements"
	"github.com/python-executor/python-executor/core/runner/sandbox"
	"golang.org/x/sys/unix"
)

const (
	// firstOrdinaryUID is the first uid that is not a system account's by any distribution's rules.
	firstOrdinaryUID = 1000
	// overflowUID stands for every user that a namespace or a network file system cannot map.
	overflowUID = 65534
	// minUIDs is the least number of uids for a server: one per runner that is kept ready, and one to ask interpreters.
	minUIDs = keptSlots + 1
	// nssTime bounds all queries of NSS together.
	nssTime = 3 * time.Second
	// nssBatch is the number of uids in one query.
	nssBatch = 1024
)

// hostUsers has the paths of a machine's user databases and process list. Tests have files of their own.
type hostUsers struct {
	passwd, nsswitch, subuid, proc string
	// getent is the program that queries NSS, or "" if there is none.
	getent string
	// userdb has the paths of which one exists where the source systemd may know users that the passwd file does not have.
	userdb []string
	// runs reports whether a process may have the real uid. nil: only proc tells.
	runs func(uid int) bool
}

func thisHost() hostUsers {
	h := hostUsers{
		passwd: "/etc/passwd", nsswitch: "/etc/nsswitch.conf", subuid: "/etc/subuid", proc: "/proc", runs: sandbox.HasProcess,
		// nss-systemd(8): services of a running systemd, and records in files.
		userdb: []string{"/run/systemd/system", "/run/systemd/userdb", "/etc/userdb", "/run/userdb", "/run/host/userdb", "/usr/lib/userdb"},
	}
	for _, dir := range filepath.SplitList(defaultPath) {
		if file := filepath.Join(dir, "getent"); h.getent == "" && isFile(file) {
			h.getent = file
		}
	}
	return h
}

// checkUsers reports whether the uids of RunAs are free on this machine. The error has the code invalid and the field run_as.
// checkUsers refuses uids of accounts, uids of the system, and uids under which other processes run, for two reasons: programs could
// reach the files of those uids, and the backend kills processes by uid. It also refuses a range that is too small for a server. It
// returns nil if programs run as the plugin's own user. Call it after validate. It changes nothing.
func (c Config) checkUsers(ctx context.Context, name string, h hostUsers) error {
	first, last, ok := c.UIDs()
	if !ok {
		return nil
	}
	r := uids{first, last}
	p := backend.Section(name)
	if message := h.conflict(ctx, r, c.withDefaults().uidFolderPath()); message != "" {
		p.Add("run_as", "%s", message)
	}
	return p.Err()
}

// conflict returns the reason why the uids of r must not run programs on this machine, or "" if they may.
func (h hostUsers) conflict(ctx context.Context, r uids, locks string) string {
	const instead = "; name a range of uids that nothing else uses"
	switch {
	case r.count() < minUIDs:
		return fmt.Sprintf("must have at least %d uids: %d for runners that are kept ready, 1 to ask interpreters for their versions (got %d in %s)", minUIDs, keptSlots, r.count(), r)
	case r.first < firstOrdinaryUID:
		message := fmt.Sprintf("must not have a uid below %d, which belong to the system (got %s)", firstOrdinaryUID, r)
		if a, ok := h.account(ctx, r); ok {
			message += fmt.Sprintf(": uid %d is the account %s", a.uid, a.name)
		}
		return message + instead
	case r.has(overflowUID):
		return fmt.Sprintf("must not have the uid %d, which stands for users that cannot be mapped (got %s)%s", overflowUID, r, instead)
	}
	if a, ok := h.account(ctx, r); ok {
		return fmt.Sprintf("must not have the uid of an account: uid %d is %s (got %s)%s", a.uid, a.name, r, instead)
	}
	if p, ok := h.stranger(r, locks); ok {
		return fmt.Sprintf("must not have a uid that runs something else: uid %d runs process %d, %s (got %s)%s", p.uid, p.pid, p.command, r, instead)
	}
	return ""
}

// account is one user of the machine.
type account struct {
	name string
	uid  int
}

// account returns the account of this machine with the lowest uid in r.
func (h hostUsers) account(ctx context.Context, r uids) (account, bool) {
	raw, err := os.ReadFile(h.passwd)
	if err != nil {
		raw = nil // a machine without a passwd file may still have a directory service
	}
	found := accountsIn(raw, r)
	if local, askEach := h.sources(); !local && h.getent != "" {
		found = append(found, h.ask(ctx, r, askEach)...)
	}
	if len(found) == 0 {
		return account{}, false
	}
	return slices.MinFunc(found, func(a, b account) int { return a.uid - b.uid }), true
}

// sources reads the sources of users from nsswitch.conf. local reports whether the passwd file is the only one. askEach reports
// whether a source need not list its users, so that each uid must be queried.
func (h hostUsers) sources() (local, askEach bool) {
	raw, err := os.ReadFile(h.nsswitch)
	if err != nil {
		return true, false // the C library's default
	}
	local = true
	for line := range strings.Lines(string(raw)) {
		line, _, _ = strings.Cut(line, "#")
		database, list, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(database) != "passwd" {
			continue
		}
		for _, source := range strings.Fields(list) {
			switch {
			case source == "files", strings.HasPrefix(source, "["), strings.HasSuffix(source, "]"):
			case source == "systemd" && !slices.ContainsFunc(h.userdb, exists): // usual in containers
			case source == "systemd", source == "compat", source == "db", source == "altfiles", source == "extrausers":
				local = false
			default:
				local, askEach = false, true
			}
		}
	}
	return local, askEach
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// ask queries NSS for all users that it lists. If each is true and no account was found, ask also queries every uid of r. It
// ignores a service that does not answer in time: a directory that is down must not keep the server from starting.
func (h hostUsers) ask(ctx context.Context, r uids, each bool) []account {
	ctx, cancel := context.WithTimeout(ctx, nssTime)
	defer cancel()
	run := func(args ...string) []account {
		cmd := exec.CommandContext(ctx, h.getent, append([]string{"passwd"}, args...)...)
		cmd.Env, cmd.Dir, cmd.SysProcAttr, cmd.WaitDelay = []string{"PATH=" + defaultPath}, "/", childAttr(0), time.Second
		raw, _ := cmd.Output() // getent exits with 2 if a uid is unknown
		return accountsIn(raw, r)
	}
	found := run()
	for first := r.first; each && len(found) == 0 && first <= r.last && ctx.Err() == nil; first += nssBatch {
		var args []string
		for uid := first; uid <= min(first+nssBatch-1, r.last); uid++ {
			args = append(args, strconv.Itoa(uid))
		}
		found = run(args...)
	}
	return found
}

// accountsIn reads the lines of a passwd file whose uid is in r.
func accountsIn(passwd []byte, r uids) []account {
	var list []account
	for line := range bytes.Lines(passwd) {
		fields := strings.Split(string(line), ":")
		if len(fields) < 4 {
			continue
		}
		if uid, err := strconv.Atoi(fields[2]); err == nil && r.has(uid) {
			list = append(list, account{fields[0], uid})
		}
	}
	return list
}

// process is a running process, with a uid of the range.
type process struct {
	pid, uid int
	command  string
}

// stranger returns a process under a uid of r that belongs to no installation of this backend. A process belongs to an installation
// if its uid is claimed, or if the uid's last holder ended without release.
func (h hostUsers) stranger(r uids, locks string) (process, bool) {
	if h.runs != nil && !h.unclaimed(r, locks) { // the usual case, without a look at each process
		return process{}, false
	}
	entries, err := os.ReadDir(h.proc)
	if err != nil {
		return process{}, false
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join(h.proc, e.Name())
		uid, ok := uidIn(dir, r)
		if !ok || claimed(locks, uid) {
			continue
		}
		// The uid may have been released between the two checks. An installation releases a uid only after the uid's last process
		// has ended, so a process that still runs belongs to none.
		if again, ok := uidIn(dir, r); ok && again == uid {
			return process{pid, uid, command(dir)}, true
		}
	}
	return process{}, false
}

// unclaimed reports whether a process may have a real uid of r that belongs to no installation of this backend.
func (h hostUsers) unclaimed(r uids, locks string) bool {
	for uid := r.first; uid <= r.last; uid++ {
		if h.runs(uid) && !claimed(locks, uid) {
			return true
		}
	}
	return false
}

// uidIn returns the first uid of the process at dir that is in r: its real, effective, saved or file system uid. A zombie has none.
func uidIn(dir string, r uids) (int, bool) {
	// os.File would try to register each of many files with the poller.
	fd, err := unix.Open(dir+"/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	var buf [2048]byte // the uids are among the first lines
	n, err := unix.Read(fd, buf[:])
	_ = unix.Close(fd) // read only
	if err != nil {
		return 0, false
	}
	raw := buf[:n]
	if bytes.Contains(raw, []byte("\nState:\tZ")) {
		return 0, false
	}
	_, rest, _ := bytes.Cut(raw, []byte("\nUid:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	for _, field := range strings.Fields(string(line)) {
		if uid, err := strconv.Atoi(field); err == nil && r.has(uid) {
			return uid, true
		}
	}
	return 0, false
}

// command returns the quoted command line of the process at dir, shortened, or else its name.
func command(dir string) string {
	raw, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // empty for some processes
	words := strings.TrimSpace(strings.ReplaceAll(string(raw), "\x00", " "))
	if words == "" {
		raw, _ = os.ReadFile(filepath.Join(dir, "comm"))
		words = strings.TrimSpace(string(raw))
	}
	return strconv.Quote(requirements.Shorten(words, 100))
}

// claimed reports whether an installation holds uid, or held uid when it ended. locks is the folder of lock files.
func claimed(locks string, uid int) bool {
	f, err := os.Open(filepath.Join(locks, strconv.Itoa(uid)+".lock"))
	if err != nil {
		return false
	}
	defer (&lockFile{f}).Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return true
	}
	return marked(f)
}

// subordinate lists the users whose subordinate uids overlap r, with their ranges. Programs could reach the files of those users'
// containers. That is a warning and no error, because some images give one user nearly all uids.
func (h hostUsers) subordinate(r uids) []string {
	raw, err := os.ReadFile(h.subuid)
	if err != nil {
		return nil
	}
	var list []string
	for line := range strings.Lines(string(raw)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) != 3 {
			continue
		}
		first, errFirst := strconv.Atoi(fields[1])
		count, errCount := strconv.Atoi(fields[2])
		if errFirst == nil && errCount == nil && count > 0 && first <= r.last && first+count > r.first {
			list = append(list, fmt.Sprintf("%s (%d-%d)", fields[0], first, first+count-1))
		}
	}
	return list
}
