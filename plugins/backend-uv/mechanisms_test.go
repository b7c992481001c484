package uvbackend

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

func TestMechanismsAreFoundOncePerBootAndRange(t *testing.T) {
	t.Parallel()
	const runAs = "61380-61383"
	r := uids{61380, 61383}
	stamp := machineStamp(r)
	if again, other := machineStamp(r), machineStamp(uids{61380, 61384}); again != stamp || other == stamp {
		t.Error("the stamp does not tell ranges of uids apart, or differs between two calls")
	}
	mine := mechanisms{Box: true, Why: map[string]string{"setuid": "because the test says so"}}
	file := filepath.Join(t.TempDir(), "mechanisms.json")
	find := func(stamp string) mechanisms {
		t.Helper()
		if err := writeJSON(file, map[string]mechanisms{stamp: mine}); err != nil {
			t.Fatal(err)
		}
		return findMechanisms(Config{Isolation: IsolationAuto, RunAs: runAs, CacheDir: t.TempDir()}, file)
	}
	if got := find(stamp); got.Why["setuid"] != mine.Why["setuid"] || got.uids != r {
		t.Errorf("got %+v, want what the file has", got)
	}
	if got := find("of another boot"); got.Why["setuid"] == mine.Why["setuid"] {
		t.Error("what was found in another boot is used")
	}
	none := filepath.Join(t.TempDir(), "mechanisms.json")
	if got := findMechanisms(Config{Isolation: IsolationNone, RunAs: runAs}, none); got.Setuid || got.Box || got.Why["box"] == "" || got.uids != r || isFile(none) {
		t.Errorf("without isolation: %+v", got)
	}
}

func TestARunnersProcessIsInTheNamespacesThatItNeeds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		how           mechanisms
		network       bool
		flags, absent uintptr
	}{
		{"a user without a network", mechanisms{User: true}, false, syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, 0},
		{"a user with a network", mechanisms{User: true}, true, syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, syscall.CLONE_NEWNET},
		{"root", mechanisms{Setuid: true, Tmpfs: true}, false, 0, syscall.CLONE_NEWUSER},
		{"a box", mechanisms{Box: true, User: true}, false, sandbox.BoxAttributes().Cloneflags, 0},
	} {
		got := c.how.attributes(c.network)
		if got.Cloneflags&c.flags != c.flags || got.Cloneflags&c.absent != 0 || got.Pdeathsig != syscall.SIGTERM {
			t.Errorf("%s: %+v", c.name, got)
		}
		if c.how.User && !c.how.Box && (len(got.UidMappings) != 1 || got.UidMappings[0].HostID != os.Geteuid()) {
			t.Errorf("%s: %+v", c.name, got.UidMappings)
		}
	}
	if in, out := (mechanisms{Box: true}).seenUID(), (mechanisms{}).seenUID(); in != sandbox.BoxUser || out != 0 {
		t.Errorf("programs see themselves as %d in a box and %d without", in, out)
	}
}

// fieldsOf returns the number of fields that an error names.
func fieldsOf(err error) int {
	e, ok := errors.AsType[*executor.Error](err)
	if !ok {
		return 0
	}
	return len(e.Fields)
}

func TestOnlyAClosedFolderOnTheHostKeepsProgramsOut(t *testing.T) {
	t.Parallel()
	open := folder(t)
	closed := filepath.Join(open, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	r := uids{61380, 61383}
	for _, c := range []struct {
		name        string
		how         mechanisms
		cache, work string
		want        int
	}{
		{"both are open", mechanisms{Setuid: true, uids: r}, open, open, 0},
		{"one is closed", mechanisms{Setuid: true, uids: r}, open, closed, 1},
		{"both are closed", mechanisms{Setuid: true, uids: r}, closed, closed, 2},
		{"programs see neither", mechanisms{Setuid: true, Box: true, uids: r}, closed, closed, 0},
		{"programs run as this user", mechanisms{}, closed, closed, 0},
	} {
		if got := fieldsOf(checkFolders("mine", Config{CacheDir: c.cache, WorkDir: c.work}, c.how)); got != c.want {
			t.Errorf("%s: %d fields are refused, want %d", c.name, got, c.want)
		}
	}
}

func TestFoldersOfEarlierVersionsAreClosed(t *testing.T) {
	t.Parallel()
	cache := filepath.Join(folder(t), "cache")
	c := Config{CacheDir: cache, WorkDir: filepath.Join(cache, "work")}
	for _, name := range []string{packagesName, "tools"} {
		put(t, cache, name, "file") // in a folder that all may enter
	}
	if err := makeFolders("mine", c); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{packagesName: 0o700, "tools": 0o711, "environments": 0o700, "bin": 0o755, "work": 0o711} {
		if info, err := os.Stat(filepath.Join(cache, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %o", name, info, err, want)
		}
	}
}

func TestTheRemedyOfAMissingSandboxFitsTheMachine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		root  bool
		knobs map[string]string
		want  string
	}{
		{"root", true, map[string]string{apparmorUserns: "1"}, "CAP_SYS_ADMIN"},
		{"Debian", false, map[string]string{usernsClone: "0"}, "kernel.unprivileged_userns_clone=1"},
		{"a hardened machine", false, map[string]string{maxUserns: "0", usernsClone: "1"}, "user.max_user_namespaces"},
		{"Ubuntu", false, map[string]string{apparmorUserns: "1"}, `'profile python-executor "/opt/it's \[here\]/px" flags=(unconfined) {'`},
		{"Ubuntu that permits", false, map[string]string{apparmorUserns: "0"}, "enable unprivileged user namespaces"},
	} {
		got := sandboxRemedy(c.root, "/opt/it's [here]/px", func(knob string) string { return c.knobs[knob] })
		if c.name == "Ubuntu" { // the shell has to print what AppArmor is to read
			command, rest, _ := strings.Cut(got[strings.Index(got, "printf"):], " > ")
			if !strings.HasPrefix(rest, "/etc/apparmor.d/python-executor && apparmor_parser -r /etc/apparmor.d/python-executor") {
				t.Errorf("got %s", got)
			}
			said, err := exec.Command("sh", "-c", command).Output()
			if err != nil {
				t.Error(err)
			}
			if c.want = "abi <abi/4.0>,\ninclude <tunables/global>\nprofile python-executor \"/opt/it's \\[here\\]/px\" flags=(unconfined) {\n  userns,\n}\n"; string(said) != c.want {
				t.Errorf("the profile is %s", said)
			}
			continue
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
