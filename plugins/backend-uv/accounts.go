package uvbackend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// firstOrdinaryUID is the first uid that is not a system account's by any distribution's rules.
	firstOrdinaryUID = 1000
	// overflowUID stands for every user that a namespace or a network file system cannot map.
	overflowUID = 65534
	// leastUIDs is what a server needs: one uid per runner that is kept ready, and one for the questions to interpreters.
	leastUIDs = keptSlots + 1
	// nssTime bounds the questions to a directory service.
	nssTime = 3 * time.Second
	// nssBatch is the number of uids of one question.
	nssBatch = 1024
)

// hostUsers says where a machine keeps its users and shows its processes. Tests have files of their own.
type hostUsers struct {
	passwd, nsswitch, subuid, proc string
	// getent is the program that asks NSS. Empty: there is none.
	getent string
}

func thisHost() hostUsers {
	h := hostUsers{passwd: "/etc/passwd", nsswitch: "/etc/nsswitch.conf", subuid: "/etc/subuid", proc: "/proc"}
	for _, dir := range filepath.SplitList(defaultPath) {
		if file := filepath.Join(dir, "getent"); h.getent == "" && isFile(file) {
			h.getent = file
		}
	}
	return h
}

// CheckUsers reports, as one error of code invalid with the field backends.uv.run_as, that the uids of programs belong to
// somebody else on this machine: to an account, to the system, or to running processes. Programs would reach what those
// uids own, and are killed by uid. A range that is too small for a server is refused too. nil: no problem, or programs run as
// the plugin's own user. Call it after Validate. It changes nothing.
func (c Config) CheckUsers(ctx context.Context) error { return c.checkUsers(ctx, "uv", thisHost()) }

func (c Config) checkUsers(ctx context.Context, name string, h hostUsers) error {
	first, last, ok := c.UIDs()
	if !ok {
		return nil
	}
	r := uids{first, last}
	p := problems{prefix: "backends." + name + "."}
	if message := h.conflict(ctx, r, c.withDefaults().uidFolderPath()); message != "" {
		p.add("run_as", "%s", message)
	}
	return p.err()
}

// conflict says why r cannot run programs here; "": it can.
func (h hostUsers) conflict(ctx context.Context, r uids, locks string) string {
	const instead = "; name a range of uids that nothing else uses"
	switch {
	case r.count() < leastUIDs:
		return fmt.Sprintf("must have at least %d uids: %d for runners that are kept ready, 1 for questions to interpreters (got %d in %s)", leastUIDs, keptSlots, r.count(), r)
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

// account returns the account with the lowest uid in r that the machine knows of.
func (h hostUsers) account(ctx context.Context, r uids) (account, bool) {
	raw, err := os.ReadFile(h.passwd)
	if err != nil {
		raw = nil // a machine without accounts of its own may still have a directory
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

// sources reads where NSS finds users. local: in the passwd file alone. askEach: also in a service that need not list them, so
// each uid must be asked for.
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
			case source == "systemd", source == "compat", source == "db", source == "altfiles", source == "extrausers":
				local = false
			default:
				local, askEach = false, true
			}
		}
	}
	return local, askEach
}

// ask asks NSS for all users that it lists, and with each for every uid of r. A service that does not answer in time is
// passed over: a directory that is down must not keep the server from starting.
func (h hostUsers) ask(ctx context.Context, r uids, each bool) []account {
	ctx, cancel := context.WithTimeout(ctx, nssTime)
	defer cancel()
	run := func(args ...string) []account {
		cmd := exec.CommandContext(ctx, h.getent, append([]string{"passwd"}, args...)...)
		cmd.Env, cmd.Dir, cmd.SysProcAttr, cmd.WaitDelay = []string{"PATH=" + defaultPath}, "/", childAttr(0), time.Second
		raw, _ := cmd.Output() // it exits with 2 where one uid is unknown
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

// process is one that runs under a uid of the range.
type process struct {
	pid, uid int
	command  string
}

// stranger returns a process under a uid of r that no installation of ours answers for. Ours are those whose uid is claimed, and
// those whose last user died with the uid in hand.
func (h hostUsers) stranger(r uids, locks string) (process, bool) {
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
		if !ok || claimed(filepath.Join(locks, strconv.Itoa(uid)+".lock")) {
			continue
		}
		// A uid is given back when its last process is gone: a process that is still there was never ours.
		if again, ok := uidIn(dir, r); ok && again == uid {
			return process{pid, uid, command(dir)}, true
		}
	}
	return process{}, false
}

// uidIn returns a uid of the process at dir that is in r: real, effective, saved or that of the file system.
func uidIn(dir string, r uids) (int, bool) {
	// Not by os.File, which would try each of many files with the poller.
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

// command names a process for people.
func command(dir string) string {
	raw, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // a process may hide it
	words := strings.TrimSpace(strings.ReplaceAll(string(raw), "\x00", " "))
	if words == "" {
		raw, _ = os.ReadFile(filepath.Join(dir, "comm"))
		words = strings.TrimSpace(string(raw))
	}
	if len(words) > 100 {
		words = words[:100] + "…"
	}
	return strconv.Quote(words)
}

// claimed reports whether the uid of a lock file is in use by an installation of ours, or was when its user died.
func claimed(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return true
	}
	return marked(f)
}

// subordinate names users whose subordinate uids overlap r, with their ranges: programs could reach the files of those users'
// containers. Some images give a user nearly all uids, so that is a warning.
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
