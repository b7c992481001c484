package uvbackend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// scopeTime bounds the wait for a user's systemd.
const scopeTime = 10 * time.Second

// The names of systemd's interface.
const (
	systemdName    = "org.freedesktop.systemd1"
	systemdPath    = dbus.ObjectPath("/org/freedesktop/systemd1")
	systemdManager = systemdName + ".Manager"
)

// errNoSystemd means that this user has no systemd that answers.
var errNoSystemd = errors.New("no systemd of this user answers")

// userSystemd is the systemd of this process's user. It owns the control groups below user@UID.service, and a login session does not
// lie there.
type userSystemd struct {
	// runtimeDir is the folder with its sockets.
	runtimeDir string
	// ownGroup returns the v2 group of this process.
	ownGroup func() string
}

func thisUserSystemd() userSystemd {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if info, err := os.Stat(dir); err != nil || ownerOf(info) != os.Geteuid() { //nolint:gosec // the folder must be ours; su and sudo do not set it, or leave that of the former user
		dir = "/run/user/" + strconv.Itoa(os.Geteuid())
	}
	return userSystemd{dir, sandbox.OwnGroup}
}

// enterScope moves this process into a delegated scope of its own and returns the scope's control group. systemd removes the scope when
// its last process has ended, whatever ended it.
func (u userSystemd) enterScope(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, scopeTime, fmt.Errorf("the systemd of this user does not answer within %s", scopeTime))
	defer cancel()
	conn, err := u.connect(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // all that it was for has been answered
	name := fmt.Sprintf("%s%d-%s.scope", groupPrefix, os.Getpid(), strings.ToLower(rand.Text()[:8]))
	if err := startScope(ctx, conn, name); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return "", fmt.Errorf("ask the systemd of this user for a scope: %w", err)
	}
	dir := u.ownGroup()
	if filepath.Base(dir) != name {
		return "", fmt.Errorf("the systemd of this user has started %s without this process, which is in %s", name, dir)
	}
	return dir, sandbox.MakeRoom(dir)
}

// connect connects to the private socket of the user's systemd, which needs no message bus, or else to the user's bus.
func (u userSystemd) connect(ctx context.Context) (*dbus.Conn, error) {
	private := filepath.Join(u.runtimeDir, "systemd", "private")
	conn, err := dialBus(ctx, private)
	if err == nil {
		return conn, nil
	}
	bus := filepath.Join(u.runtimeDir, "bus")
	conn, errBus := dialBus(ctx, bus)
	if errBus != nil {
		return nil, fmt.Errorf("%w: %w; %w", errNoSystemd, err, errBus)
	}
	if err := conn.Hello(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s: %w", errNoSystemd, bus, err), conn.Close())
	}
	removed := []dbus.MatchOption{dbus.WithMatchObjectPath(systemdPath), dbus.WithMatchInterface(systemdManager), dbus.WithMatchMember("JobRemoved")}
	if err := conn.AddMatchSignalContext(ctx, removed...); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", bus, err), conn.Close())
	}
	return conn, nil
}

func dialBus(ctx context.Context, path string) (*dbus.Conn, error) {
	conn, err := dbus.Dial("unix:path="+dbus.EscapeBusAddressValue(path), dbus.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), conn.Close())
	}
	return conn, nil
}

// property is one of a unit, as StartTransientUnit takes it.
type property struct {
	Name  string
	Value dbus.Variant
}

// auxiliary is a further unit of StartTransientUnit. There is none.
type auxiliary struct {
	Name       string
	Properties []property
}

// startScope makes the scope name with this process in it and returns when it has started.
func startScope(ctx context.Context, conn *dbus.Conn, name string) error {
	signals := make(chan *dbus.Signal, 64)
	conn.Signal(signals)
	properties := []property{
		{"Description", dbus.MakeVariant("programs of python-executor")},
		{"PIDs", dbus.MakeVariant([]uint32{uint32(os.Getpid())})}, //nolint:gosec // a process's number
		{"Delegate", dbus.MakeVariant(true)},
		{"TasksMax", dbus.MakeVariant(uint64(math.MaxUint64))}, // as in a login session; each slot has a bound of its own
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
	}
	var job dbus.ObjectPath
	call := conn.Object(systemdName, systemdPath).CallWithContext(ctx, systemdManager+".StartTransientUnit", 0, name, "fail", properties, []auxiliary{})
	if err := call.Store(&job); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-conn.Context().Done():
			return errors.New("the connection has ended")
		case s, ok := <-signals:
			if !ok {
				return errors.New("the connection has ended")
			}
			var id uint32
			var of dbus.ObjectPath
			var unit, result string
			if s.Name != systemdManager+".JobRemoved" || dbus.Store(s.Body, &id, &of, &unit, &result) != nil || of != job {
				continue
			}
			if result != "done" {
				return fmt.Errorf("%s: %s", unit, result)
			}
			return nil
		}
	}
}
