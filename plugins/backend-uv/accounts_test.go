package uvbackend

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// fakeHost returns a machine with this passwd file and this nsswitch.conf. getent is the body of its getent script, or "".
func fakeHost(t *testing.T, passwd, nsswitch, getent string) hostUsers {
	t.Helper()
	dir := t.TempDir()
	h := hostUsers{passwd: filepath.Join(dir, "passwd"), nsswitch: filepath.Join(dir, "nsswitch.conf"), subuid: filepath.Join(dir, "subuid"), proc: filepath.Join(dir, "proc"), userdb: []string{filepath.Join(dir, "none"), dir}}
	for path, text := range map[string]string{h.passwd: passwd, h.nsswitch: nsswitch} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if getent != "" {
		h.getent = filepath.Join(dir, "getent")
		script(t, h.getent, "#!/bin/sh\n"+getent)
	}
	return h
}

func TestARangeOverRealAccountsIsRefused(t *testing.T) {
	t.Parallel()
	const passwd = "root:x:0:0:root:/root:/bin/sh\nbob:x:70040:70040::/home/bob:/bin/sh\nalice:x:70005:70005::/home/alice:/bin/sh\nsystem:x:500:500::/:/bin/false\n"
	lists := `[ $# = 1 ] && echo 'listed:*:70020:70020::/:/bin/sh'; exit 0`
	asks := func(uid string) string {
		return `shift; for uid; do [ "$uid" = ` + uid + ` ] && echo "asked:*:$uid:$uid::/:/bin/sh"; done; exit 2`
	}
	asked := asks("70030")
	after := strconv.Itoa(71000 + nssBatch)
	for _, c := range []struct {
		name, nsswitch, getent, runAs, want string
	}{
		{"an account in the range", "passwd: files\n", "", "70000-70010", "uid 70005 is alice"},
		{"at its first uid", "passwd: files\n", "", "70005-70010", "uid 70005 is alice"},
		{"at its last uid", "passwd: files\n", "", "70001-70005", "uid 70005 is alice"},
		{"two accounts in the range", "passwd: files\n", "", "70005-70050", "uid 70005 is alice"},
		{"none in it", "passwd: files\n", "", "70006-70010", ""},
		{"none before it", "passwd: files\n", "", "70000-70004", ""},
		{"no NSS configuration", "", "", "70000-70010", "uid 70005 is alice"},
		{"an account that a service lists", "passwd: files systemd\n", lists, "70011-70020", "uid 70020 is listed"},
		{"an account that a service only knows when asked", "passwd: files sss\n", asked, "70021-70030", "uid 70030 is asked"},
		{"a large range that a service is asked for", "passwd:\tfiles [NOTFOUND=continue] ldap # far away\n", asked, "70021-79000", "uid 70030 is asked"},
		{"the first uid after those that are asked for together", "passwd: files sss\n", asks(after), "71000-79000", "uid " + after + " is asked"},
		{"an account of another database of files", "passwd: files compat\n", lists, "70011-70020", "uid 70020 is listed"},
		{"an account of a service that is not used", "passwd: files\n# passwd: sss\ngroup: sss\n", asked, "70021-70030", ""},
		{"a uid of the system", "passwd: files\n", "", "500-600", "uid 500 is the account system"},
		{"a uid of the system without an account", "passwd: files\n", "", "999-1100", "must not have a uid below 1000"},
		{"the first that is not the system's", "passwd: files\n", "", "1000-1003", ""},
		{"the overflow uid", "passwd: files\n", "", "65530-65540", "65534"},
		{"too small", "passwd: files\n", "", "70006-70008", "must have at least 4 uids"},
		{"just large enough", "passwd: files\n", "", "70006-70009", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, err := parseUIDs(c.runAs)
			if err != nil {
				t.Fatal(err)
			}
			got := fakeHost(t, passwd, c.nsswitch, c.getent).conflict(t.Context(), r, t.TempDir())
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestSystemdIsNotAskedWhereItHasNoUsers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		nsswitch string
		userdb   bool
		local    bool
	}{
		{"passwd: files systemd\n", false, true},
		{"passwd: files systemd\n", true, false},
		{"passwd: files systemd sss\n", false, false},
	} {
		h := fakeHost(t, "", c.nsswitch, "")
		if !c.userdb {
			h.userdb = h.userdb[:1]
		}
		if local, _ := h.sources(); local != c.local {
			t.Errorf("%q with a user database %v: only the passwd file is read: %v, want %v", c.nsswitch, c.userdb, local, c.local)
		}
	}
}

// TestARangeWhoseUIDRunsSomethingElseIsRefused also shows that the backend does not kill the other process.
func TestARangeWhoseUIDRunsSomethingElseIsRefused(t *testing.T) {
	needtest.NeedRoot(t)
	const uid = 61250
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: []uint32{}}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := false
	defer func() {
		if !gone {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	want := fmt.Sprintf("uid %d runs process %d, \"sleep 1000\"", uid, cmd.Process.Pid)
	refused := func(name string, err error) {
		t.Helper()
		e, ok := err.(*executor.Error) //nolint:errorlint // it is one, not about one
		if !ok || e.Code != executor.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != "backends."+name+".run_as" || !strings.Contains(e.Fields[0].Message, want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	runAs := strconv.Itoa(uid-3) + "-" + strconv.Itoa(uid)
	refused("uv", Config{RunAs: runAs}.checkUsers(t.Context(), "uv", thisHost()))
	_, err := newBackend(t.Context(), plugin.Configure{Name: "mine", Instance: t.Name(), Options: section(t, map[string]any{"run_as": runAs})})
	refused("mine", err)
	if err := (Config{RunAs: runAs, Isolation: IsolationNone}).checkUsers(t.Context(), "uv", thisHost()); err != nil {
		t.Errorf("with isolation none: %v", err)
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the process was ended: %v", err)
	}
	gone = true
	_, _ = cmd.Process.Kill(), cmd.Wait()
	b := openBackend(t, map[string]any{"run_as": runAs})
	succeeds(t, b, executor.Spec{Code: "print(1)"})
}

func TestProcessesOfAnotherInstallationAreNoStrangers(t *testing.T) {
	t.Parallel()
	locks, proc := t.TempDir(), t.TempDir()
	r := uids{70000, 70003}
	h := hostUsers{proc: proc}
	status := func(pid int, text string) {
		t.Helper()
		dir := filepath.Join(proc, strconv.Itoa(pid))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "status"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sees := func(what string, want bool) {
		t.Helper()
		if p, ok := h.stranger(r, locks); ok != want {
			t.Errorf("%s: %+v, %t", what, p, ok)
		}
	}
	status(1, "Name:\tinit\nState:\tS\nUid:\t0\t0\t0\t0\nGid:\t70000\t70000\t70000\t70000\n")
	sees("a process of root", false)
	status(2, "Name:\tgone\nState:\tZ (zombie)\nUid:\t70000\t70000\t70000\t70000\n")
	sees("a dead process", false)
	for _, ids := range []string{"70000\t0\t0\t0", "0\t70000\t0\t0", "0\t0\t70000\t0", "0\t0\t0\t70000"} {
		status(3, "Name:\tx\nState:\tR\nUid:\t"+ids+"\n")
		sees("a process with the uids "+ids, true)
	}
	asked := 0
	h.runs = func(uid int) bool { asked++; return uid == 70002 }
	sees("a process, while the kernel tells of one", true)
	h.runs = func(int) bool { asked++; return false }
	sees("a process, while the kernel tells of none", false)
	if h.runs = nil; asked != 3+4 {
		t.Errorf("the kernel was asked %d times", asked)
	}
	p, _ := h.stranger(r, locks)
	named := func(want string) {
		t.Helper()
		if got := command(filepath.Join(proc, strconv.Itoa(p.pid))); got != want {
			t.Errorf("the process is named %s, want %s", got, want)
		}
	}
	script(t, filepath.Join(proc, "3", "comm"), "worker\n")
	named(`"worker"`)
	script(t, filepath.Join(proc, "3", "cmdline"), "/bin/program\x00--all\x00")
	named(`"/bin/program --all"`)
	c, err := claimUID(locks, r)
	if err != nil {
		t.Fatal(err)
	}
	sees("a process whose uid is claimed", false)
	c.lock.Close() // as if the holder had died
	sees("a process whose uid's holder died", false)
	if err := os.WriteFile(filepath.Join(locks, "70000.lock"), []byte("12 another-boot\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sees("a process whose uid's holder died before this boot", true)
	c, err = claimUID(locks, r)
	if err != nil {
		t.Fatal(err)
	}
	c.release()
	sees("a process whose uid was released", true)
}

func TestSubordinateUIDsOfOthersAreNamed(t *testing.T) {
	t.Parallel()
	h := fakeHost(t, "", "", "")
	if err := os.WriteFile(h.subuid, []byte("alice:100000:65536\n# no line\nbob:70000:10\ncarol:70011:1\ndave:70000:10:more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"60600-61111": "", "70009-70010": "bob (70000-70009)", "69990-70000": "bob (70000-70009)", "70010-70010": "",
		"69000-69999": "", "65000-120000": "alice (100000-165535), bob (70000-70009), carol (70011-70011)",
	} {
		r, err := parseUIDs(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(h.subordinate(r), ", "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestAUIDThatCannotBeClearedIsNotGivenOutAgain(t *testing.T) {
	needtest.NeedRoot(t)
	b := openBackend(t, map[string]any{"run_as": "61260-61265", "warm_sessions": -1})
	s, _, err := b.takeSlot(t.Context(), false, "")
	if err != nil {
		t.Fatal(err)
	}
	bad, end := s.uid.uid, b.slots.ids.end
	b.slots.ids.end = func(uid int) error {
		if uid == bad {
			return fmt.Errorf("does not die")
		}
		return end(uid)
	}
	s.give()
	for range 3 {
		again, err := b.slots.newSlot(t.Context(), 1000, slotKind{}, b.slots.programUID)
		if err != nil {
			t.Fatal(err)
		}
		if again.uid.uid == bad {
			t.Error("a uid with processes left was given out again")
		}
		again.give()
	}
	// The next start tries again, because the mark has stayed.
	pool := newUIDPool(b.slots.ids.dir, uids{bad, bad}, sandbox.Marks{}, b.log)
	if _, err := pool.take(pool.uids); executor.CodeOf(err) != executor.Exhausted {
		t.Errorf("claim of a uid that could not be cleared: %v, want exhausted", err)
	}
	b.slots.ids.close()
	var swept []int
	pool.end = func(uid int) error { swept = append(swept, uid); return nil }
	pool.sweep()
	if len(swept) != 1 || swept[0] != bad {
		t.Errorf("swept %v, want %d", swept, bad)
	}
}

func TestADirtyUIDThatCannotBeClearedIsPassedOver(t *testing.T) {
	t.Parallel()
	r := uids{70000, 70001}
	first := newUIDPool(t.TempDir(), r, sandbox.Marks{}, slog.New(slog.DiscardHandler))
	dead, err := first.take(r)
	if err != nil {
		t.Fatal(err)
	}
	dead.lock.Close()
	var ended []int
	first.end = func(uid int) error {
		ended = append(ended, uid)
		if uid == 70000 {
			return fmt.Errorf("does not die")
		}
		return nil
	}
	c, err := first.take(r)
	if err != nil || c.uid != 70001 || len(ended) != 2 || ended[0] != 70000 {
		t.Fatalf("%+v, %v, ended %v", c, err, ended)
	}
	c.release()
	first.close()
	first.end = func(int) error { return nil }
	if c, err = first.take(r); err != nil || c.uid != 70000 {
		t.Errorf("got %+v, %v, want uid 70000, which can be cleared now", c, err)
	}
	c.release()
}

func TestAWorkFolderOfSomethingElseIsRefusedAndUntouched(t *testing.T) {
	t.Parallel()
	work := folder(t)
	mine := filepath.Join(work, "home", "letter")
	if err := os.MkdirAll(mine, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := newBackend(t.Context(), plugin.Configure{Name: "uv", Instance: t.Name(), Options: section(t, map[string]any{"work_dir": work})})
	if executor.CodeOf(err) != executor.Invalid || !strings.Contains(err.Error(), "backends.uv.work_dir") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
	fresh := folder(t)
	if err := os.Mkdir(filepath.Join(fresh, lostAndFound), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b, err := newBackend(t.Context(), plugin.Configure{Name: "uv", Instance: t.Name(), Options: section(t, map[string]any{"work_dir": fresh})})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(fresh, lostAndFound)); err != nil {
		t.Error(err)
	}
}
