package uvbackend

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"
)

// fakeSystemd answers on a socket as the systemd of a user does, and as the message bus before it.
type fakeSystemd struct {
	t       *testing.T
	runtime string
	slice   string // where it makes scopes
	// answer starts the scope name and returns the result of its job, or an error.
	answer func(name string) (result string, err error)

	mu      sync.Mutex
	own     string // where the calling process is
	calls   []string
	started map[string]dbus.Variant
}

// newFakeSystemd serves on the socket below a folder for sockets. Its scopes start.
func newFakeSystemd(t *testing.T, socket string) *fakeSystemd {
	t.Helper()
	f := &fakeSystemd{t: t, runtime: t.TempDir(), slice: t.TempDir(), own: "/session-1.scope"}
	f.answer = func(name string) (string, error) { f.move(name); return "done", nil }
	path := filepath.Join(f.runtime, socket)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() { defer conn.Close(); f.serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); served.Wait() })
	return f
}

func (f *fakeSystemd) user() userSystemd {
	return userSystemd{f.runtime, func() string { f.mu.Lock(); defer f.mu.Unlock(); return f.own }}
}

// move makes the scope's group, and says that the process is in it.
func (f *fakeSystemd) move(name string) {
	dir := filepath.Join(f.slice, name)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "cgroup.procs"), nil, 0o600)); err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.own = dir
}

// serve answers one connection until it ends.
func (f *fakeSystemd) serve(conn net.Conn) {
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		answer := "ERROR\r\n"
		switch words := strings.Fields(strings.TrimPrefix(line, "\x00")); {
		case slices.Equal(words, []string{"AUTH"}):
			answer = "REJECTED EXTERNAL\r\n"
		case words[0] == "AUTH":
			answer = "OK 0123456789abcdef0123456789abcdef\r\n"
		}
		if strings.HasPrefix(line, "BEGIN") {
			break
		}
		if _, err := conn.Write([]byte(answer)); err != nil {
			return
		}
	}
	serial := uint32(0)
	send := func(m *dbus.Message) {
		serial++
		// godbus sets serials itself, and only of messages that it sends.
		var raw writer
		if err := m.EncodeTo(&raw, binary.LittleEndian); err != nil {
			f.t.Error(err)
		}
		binary.LittleEndian.PutUint32(raw[8:], serial)
		_, _ = conn.Write(raw) // the caller may have gone
	}
	for {
		m, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		member, _ := m.Headers[dbus.FieldMember].Value().(string)
		f.mu.Lock()
		f.calls = append(f.calls, member)
		f.mu.Unlock()
		reply := func(typ dbus.Type, headers map[dbus.HeaderField]dbus.Variant, body ...any) {
			headers[dbus.FieldReplySerial] = dbus.MakeVariant(m.Serial())
			if len(body) > 0 {
				headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
			}
			send(&dbus.Message{Type: typ, Headers: headers, Body: body})
		}
		none := func() map[dbus.HeaderField]dbus.Variant { return map[dbus.HeaderField]dbus.Variant{} }
		switch member {
		case "Hello":
			reply(dbus.TypeMethodReply, none(), ":1.1")
		case "AddMatch":
			reply(dbus.TypeMethodReply, none())
		case "StartTransientUnit":
			name, _ := m.Body[0].(string)
			f.read(m.Body[2])
			result, err := f.answer(name)
			if err != nil {
				failed := none()
				failed[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.DBus.Error.Failed")
				reply(dbus.TypeError, failed, err.Error())
				continue
			}
			for _, job := range []dbus.ObjectPath{"/job/1", "/job/2"} { // the first one is of somebody else
				send(removed(job, name, map[bool]string{true: result, false: "canceled"}[job == "/job/2"]))
			}
			reply(dbus.TypeMethodReply, none(), dbus.ObjectPath("/job/2"))
		}
	}
}

// writer keeps what is written to it.
type writer []byte

func (w *writer) Write(p []byte) (int, error) { *w = append(*w, p...); return len(p), nil }

func removed(job dbus.ObjectPath, unit, result string) *dbus.Message {
	body := []any{uint32(2), job, unit, result}
	return &dbus.Message{Type: dbus.TypeSignal, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath: dbus.MakeVariant(systemdPath), dbus.FieldInterface: dbus.MakeVariant(systemdManager), dbus.FieldMember: dbus.MakeVariant("JobRemoved"),
		dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(body...)),
	}}
}

// read keeps the properties of a unit.
func (f *fakeSystemd) read(body any) {
	var list []property
	if err := dbus.Store([]any{body}, &list); err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started = map[string]dbus.Variant{}
	for _, p := range list {
		f.started[p.Name] = p.Value
	}
}

func TestAUsersSystemdGivesAScope(t *testing.T) {
	t.Parallel()
	for socket, calls := range map[string][]string{
		"systemd/private": {"StartTransientUnit"},
		"bus":             {"Hello", "AddMatch", "StartTransientUnit"}, // where there is no private socket
	} {
		f := newFakeSystemd(t, socket)
		dir, err := f.user().enterScope(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if name := filepath.Base(dir); filepath.Dir(dir) != f.slice || !strings.HasPrefix(name, "python-executor-") || !strings.HasSuffix(name, ".scope") || isGroupName(name) {
			t.Errorf("%s: the scope is %s", socket, dir)
		}
		if _, err := os.Stat(filepath.Join(dir, "host")); err != nil {
			t.Errorf("%s: no group for this process: %v", socket, err)
		}
		if pids, _ := f.started["PIDs"].Value().([]uint32); !slices.Equal(pids, []uint32{uint32(os.Getpid())}) { //nolint:gosec // a process's number
			t.Errorf("%s: processes %v are moved", socket, pids)
		}
		if delegate, _ := f.started["Delegate"].Value().(bool); !delegate {
			t.Errorf("%s: the scope is not delegated: %v", socket, f.started)
		}
		if !slices.Equal(f.calls, calls) {
			t.Errorf("%s: calls %q, want %q", socket, f.calls, calls)
		}
	}
}

func TestAScopeThatDoesNotStartIsAReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		answer func(f *fakeSystemd, name string) (string, error)
		want   string
	}{
		{"a refusal", func(*fakeSystemd, string) (string, error) { return "", errors.New("too many units") }, "too many units"},
		{"a failed job", func(*fakeSystemd, string) (string, error) { return "failed", nil }, ".scope: failed"},
		{"a process that stays where it is", func(*fakeSystemd, string) (string, error) { return "done", nil }, "without this process, which is in /session-1.scope"},
	} {
		f := newFakeSystemd(t, "systemd/private")
		f.answer = func(name string) (string, error) { return c.answer(f, name) }
		if _, err := f.user().enterScope(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, errNoSystemd) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

func TestWithoutASystemdOfTheUserThereIsNoScope(t *testing.T) {
	t.Parallel()
	if _, err := (userSystemd{t.TempDir(), func() string { return "" }}).enterScope(t.Context()); !errors.Is(err, errNoSystemd) || !strings.Contains(err.Error(), "systemd/private") {
		t.Errorf("got %v", err)
	}
}

func TestASystemdThatDoesNotAnswerIsLeft(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	f := newFakeSystemd(t, "systemd/private")
	f.answer = func(string) (string, error) { cancel(errors.New("too late")); return "waiting", nil }
	if _, err := f.user().enterScope(ctx); err == nil || !strings.Contains(err.Error(), "too late") {
		t.Errorf("got %v", err)
	}
}

func TestTheRemedyOfMissingControlGroupsFitsTheMachine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		host groupHost
		err  error
		want string
	}{
		{"a container", groupHost{root: true, container: true, v2: true}, os.ErrPermission, "docker run --memory"},
		{"a container that nobody names", groupHost{root: true, v2: true}, os.ErrPermission, "docker run --memory"},
		{"a user in a container", groupHost{container: true, v2: true}, errNoSystemd, "docker run --memory"},
		{"version 1", groupHost{systemd: true, user: "ann"}, os.ErrPermission, "systemd.unified_cgroup_hierarchy=1"},
		{"no systemd", groupHost{v2: true, user: "ann"}, errNoSystemd, "let root make a control group for ann"},
		{"a user without a systemd", groupHost{v2: true, systemd: true, user: "ann"}, errNoSystemd, "loginctl enable-linger ann"},
		{"a refusal", groupHost{v2: true, systemd: true}, errors.New("too many units"), "systemd-run --user --scope -p Delegate=yes"},
		{"a controller that is not delegated", groupHost{v2: true, systemd: true}, nil, "Delegate=cpu memory pids"},
		{"root", groupHost{root: true, v2: true, systemd: true}, nil, "mount the controllers"},
	} {
		if got := c.host.remedy(c.err); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestProcessesOfEarlierScopesAreFoundBesideThisOne(t *testing.T) {
	t.Parallel()
	slice := t.TempDir()
	for _, name := range []string{"python-executor-1-a.scope", "python-executor-2-b.scope", "vte-spawn-1.scope"} {
		if err := os.Mkdir(filepath.Join(slice, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, place := range placesOf(map[string]string{"unified": filepath.Join(slice, "python-executor-2-b.scope")}) {
		got = append(got, filepath.Base(place["unified"]))
	}
	if want := []string{"python-executor-2-b.scope", "python-executor-1-a.scope"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := placesOf(map[string]string{"memory": "/m", "unified": filepath.Join(slice, "vte-spawn-1.scope")}); len(got) != 1 {
		t.Errorf("beside a group that is no scope of ours: %v", got)
	}
}
