package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire"
)

// maxSocketPath is the longest name that a unix socket can have, with its final zero.
const maxSocketPath = 108

// SocketNameLength is the most that go-plugin puts behind the folder of one process: a plugin's socket is "/plugin" and a random
// uint32, the host's sockets for a frontend lie in one more folder.
const SocketNameLength = len("/plugin-dir4294967295/plugin4294967295")

// LaunchOptions says which program to start, and how.
type LaunchOptions struct {
	// Path is the program. Args is its whole argv; empty: Path alone.
	Path string
	Args []string
	// SHA256 is the hex digest that the file at Path must have; empty: not checked. Whoever may write the file between
	// the check and the start can still exchange it.
	SHA256 string
	// Env is added to the allow-listed environment, as "KEY=value".
	Env []string
	// Files are given to the plugin as its descriptors 3, 4, …
	Files []*os.File
	// RunDir is a folder of ours with a short path; Launch makes a private one in it for the socket, and removes it.
	RunDir string
	// Configure is sent to the plugin.
	Configure Configure
	// Log takes the plugin's log; nil drops it.
	Log *slog.Logger
	// PingInterval and PingTimeout: a plugin that leaves a ping unanswered for so long is killed. 0: 15 s and 60 s.
	PingInterval time.Duration
	PingTimeout  time.Duration
}

// Launch starts a plugin, configures it and waits until it is ready. ctx bounds the start only. Codes: invalid (its
// configuration, a digest that does not match, a RunDir that is too long), not_found (no such file), unavailable.
func Launch(ctx context.Context, o LaunchOptions) (*Process, error) {
	if err := checkProgram(o); err != nil {
		return nil, err
	}
	dir, err := makeRunDir(o.RunDir)
	if err != nil {
		return nil, err
	}
	l := &launch{options: o, dir: dir, logs: newLogPump(o.Log)}
	l.process = newProcess(o.Path, o.Args, l.logs)
	l.process.cmd.ExtraFiles = o.Files
	p, err := l.start(ctx)
	if err != nil {
		return nil, errors.Join(l.explain(ctx, err), os.RemoveAll(dir))
	}
	return p, nil
}

// checkProgram checks what can be checked without starting.
func checkProgram(o LaunchOptions) error {
	info, err := os.Stat(o.Path)
	if errors.Is(err, os.ErrNotExist) {
		return executor.FieldErrorf(executor.NotFound, "backends."+o.Configure.Name+".path", "no such file: %s", o.Path)
	}
	if err != nil {
		return executor.Errorf(executor.Unavailable, "plugin program: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return executor.FieldErrorf(executor.Invalid, "backends."+o.Configure.Name+".path", "not an executable file: %s", o.Path)
	}
	if o.SHA256 == "" {
		return nil
	}
	field := "backends." + o.Configure.Name + ".sha256"
	want, err := hex.DecodeString(o.SHA256)
	if err != nil || len(want) != sha256.Size {
		return executor.FieldErrorf(executor.Invalid, field, "not a SHA-256 in hex")
	}
	same, err := (&goplugin.SecureConfig{Checksum: want, Hash: sha256.New()}).Check(o.Path)
	if err != nil {
		return executor.Errorf(executor.Unavailable, "plugin program: %w", err)
	}
	if !same {
		return executor.FieldErrorf(executor.Invalid, field, "%s has another digest", o.Path)
	}
	return nil
}

// makeRunDir makes the private folder of one process.
func makeRunDir(parent string) (string, error) {
	dir, err := os.MkdirTemp(parent, "p") // 0700
	if err != nil {
		return "", executor.Errorf(executor.Unavailable, "run folder: %w", err)
	}
	if len(dir)+SocketNameLength+1 > maxSocketPath {
		err := executor.Errorf(executor.Invalid, "the run folder %s is too long a path for a socket", dir)
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// launch is a start under way.
type launch struct {
	options LaunchOptions
	dir     string
	logs    *logPump
	process *process
	client  *goplugin.Client
}

func (l *launch) start(ctx context.Context) (*Process, error) {
	l.client = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  handshake(),
		Plugins:          goplugin.PluginSet{dispenseName: &grpcPlugin{}},
		RunnerFunc:       l.run,
		SkipHostEnv:      true,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		GRPCDialOptions:  wire.DialOptions(),
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: l.dir},
		// What it has to say comes back as errors; what the plugin says is read by logPump.
		Logger: hclog.NewNullLogger(),
	})
	stop := context.AfterFunc(ctx, l.process.kill)
	defer stop()
	supervision, d, err := l.connect(ctx)
	if err == nil {
		return newProcessHandle(l, supervision, d), nil
	}
	l.process.kill()
	l.client.Kill() // waits for its goroutines
	if l.process.started() {
		<-l.process.exited
		<-l.logs.done
	}
	return nil, err
}

func (l *launch) run(_ hclog.Logger, cmd *exec.Cmd, _ string) (runner.Runner, error) {
	env := append(cmd.Env, goplugin.EnvUnixSocketDir+"="+l.dir) //nolint:gocritic // cmd is thrown away
	l.process.cmd.Env = environment(l.options.Env, env)
	return l.process, nil
}

func (l *launch) connect(ctx context.Context) (*wire.Supervision, *dispensed, error) {
	protocol, err := l.client.Client()
	if err != nil {
		return nil, nil, executor.Errorf(executor.Unavailable, "start: %w", err)
	}
	raw, err := protocol.Dispense(dispenseName)
	if err != nil {
		return nil, nil, executor.Errorf(executor.Internal, "start: %w", err)
	}
	d, ok := raw.(*dispensed)
	if !ok {
		return nil, nil, executor.Errorf(executor.Internal, "start: a plugin of type %T", raw)
	}
	c := l.options.Configure
	supervision, err := wire.Supervise(ctx, d.conn, wire.Configuration{
		Name: c.Name, Instance: c.Instance, Embedded: c.Embedded, DataDir: c.DataDir, Options: c.Options,
	})
	return supervision, d, err
}

// explain adds what the plugin wrote when it did not start, and says so when it was ctx that ended the start.
func (l *launch) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("start plugin %s: %w", l.options.Configure.Name, ctx.Err())
	}
	text := l.logs.text()
	if text == "" || executor.CodeOf(err) == executor.Invalid {
		return err
	}
	return fmt.Errorf("%w; it wrote: %s", err, text)
}
