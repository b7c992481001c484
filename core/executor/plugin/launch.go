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
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire"
)

// maxSocketPath is the length of the longest path of a unix socket, with its final zero.
const maxSocketPath = 108

// SocketNameLength is the length of the longest path that go-plugin makes in the folder of one process. The socket of a
// plugin is "/plugin" and a random uint32. The host's sockets for a frontend are in one more folder.
const SocketNameLength = len("/plugin-dir4294967295/plugin4294967295")

// LaunchOptions describe the program to start.
type LaunchOptions struct {
	// Path is the program. Args is its whole argv; empty means Path alone.
	Path string
	Args []string
	// SHA256 is the hex digest that the file at Path must have; empty means any. A user who may write the file can still
	// replace it between the check and the start.
	SHA256 string
	// Env is added to the allow-listed environment, as "KEY=value".
	Env []string
	// RunDir is a folder with a short path. Launch makes a private folder in it for the socket, and removes that folder.
	RunDir string
	// Configure is sent to the plugin.
	Configure Configure
	// Log takes the plugin's log; nil discards it.
	Log *slog.Logger
	// PingInterval is the time between two pings, 0 means 15 s. A plugin that does not answer a ping within PingTimeout is
	// killed; 0 means 60 s.
	PingInterval time.Duration
	PingTimeout  time.Duration
	// CutGrace is how long Kill lets a plugin that was not drained end its calls, before it kills the plugin. 0 means 3 s.
	CutGrace time.Duration
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
	p, err := l.start(ctx)
	if err != nil {
		return nil, errors.Join(l.explain(ctx, err), os.RemoveAll(dir))
	}
	return p, nil
}

// checkProgram checks the file and its digest.
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
		return executor.FieldErrorf(executor.Invalid, field, "must be a SHA-256 in hex (got %q)", o.SHA256)
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
		// go-plugin returns errors. logPump reads the plugin's log.
		Logger: hclog.NewNullLogger(),
	})
	stop := context.AfterFunc(ctx, l.process.kill)
	defer stop()
	supervision, d, err := l.connect(ctx)
	if err == nil {
		return newProcessHandle(l, supervision, d), nil
	}
	l.process.kill()
	l.client.Kill() // waits for go-plugin's goroutines
	if l.process.started() {
		<-l.process.exited
		<-l.logs.done
	}
	return nil, err
}

func (l *launch) run(_ hclog.Logger, cmd *exec.Cmd, _ string) (runner.Runner, error) {
	env := append(cmd.Env, goplugin.EnvUnixSocketDir+"="+l.dir) //nolint:gocritic // cmd is not used
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
		Name: c.Name, Instance: c.Instance, Embedded: c.Embedded, Personal: c.Personal, DataDir: c.DataDir, Options: c.Options,
	})
	return supervision, d, err
}

// explain adds the output of a plugin that did not start. If ctx has ended it returns that instead.
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

// environmentNames are the variables that a plugin inherits. A process needs them to find programs, folders, names and
// certificates. The plugin's configuration is sent in Configure.
var environmentNames = []string{
	"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
	"XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR",
	"PYENV_ROOT",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NETRC",
	// The package index that pip and uv of the host use.
	"PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_TRUSTED_HOST", "PIP_CONFIG_FILE",
	"UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INSECURE_HOST", "UV_FIND_LINKS", "UV_PYTHON_INSTALL_DIR",
	"UV_PYTHON_INSTALL_MIRROR", "UV_PYTHON_DOWNLOADS_JSON_URL",
	// The Docker daemon that the docker command of the host uses.
	"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "DOCKER_API_VERSION", "SSH_AUTH_SOCK",
	// The cluster that the nomad command of the host uses.
	"NOMAD_ADDR", "NOMAD_REGION", "NOMAD_NAMESPACE", "NOMAD_TOKEN", "NOMAD_HTTP_AUTH",
	"NOMAD_CACERT", "NOMAD_CAPATH", "NOMAD_CLIENT_CERT", "NOMAD_CLIENT_KEY", "NOMAD_TLS_SERVER_NAME", "NOMAD_SKIP_VERIFY",
	// The Consul that the consul command of the host uses.
	"CONSUL_HTTP_ADDR", "CONSUL_HTTP_TOKEN", "CONSUL_HTTP_TOKEN_FILE", "CONSUL_HTTP_AUTH", "CONSUL_HTTP_SSL", "CONSUL_NAMESPACE", "CONSUL_PARTITION",
	"CONSUL_CACERT", "CONSUL_CAPATH", "CONSUL_CLIENT_CERT", "CONSUL_CLIENT_KEY", "CONSUL_TLS_SERVER_NAME", "CONSUL_HTTP_SSL_VERIFY",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
	"GOCOVERDIR", "GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GORACE", "GOTRACEBACK",
}

// environment returns the allowed part of this process's environment, then extra, then what go-plugin needs. The last value of a name
// counts.
func environment(extra, handshake []string) []string {
	var env []string
	for _, name := range environmentNames {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	env = append(env, extra...)
	for _, pair := range handshake {
		if strings.Contains(pair, "=") {
			env = append(env, pair)
		}
	}
	return env
}
