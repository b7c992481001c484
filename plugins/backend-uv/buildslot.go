package uvbackend

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/fetchproxy"
	"github.com/python-executor/python-executor/core/requirements"
	"github.com/python-executor/python-executor/core/runner"
)

// buildSlot is the slot in which one environment is prepared. Programs never get this slot. As root it has a uid of its own. A
// control group or resource limits bound it. When the plugin ends, the slot's runner ends all processes in the build slot.
type buildSlot struct {
	builder *builder
	slot    *slot
	// temp is the build's own folder, packages is the folder of its package cache.
	temp, packages string
	// private reports whether the package cache lies in temp and is removed with temp.
	private   bool
	cacheLock *lockFile // nil if private
	begun     time.Time
	// reach lists the files and folders that programs in the build slot use. In a box they may write to temp and packages only.
	reach []string
	how   mechanisms
	// proxy is how programs in the build slot fetch, and the only way where the slot has a private network. refused tells of what it refuses.
	proxy   *fetchproxy.Proxy
	refused chan *fetchproxy.Refusal
	// fresh is the environment before packages were installed.
	fresh madeByUV
}

// stampTick exceeds the lag of file time stamps behind the clock. File systems take the time of the kernel's last tick.
const stampTick = 20 * time.Millisecond

// openBuildSlot makes a build slot that fills temp, and gives temp with its content to the build slot's uid. If private is true,
// the package cache lies in temp.
func (b *builder) openBuildSlot(ctx context.Context, turn int, temp string, private bool) (_ *buildSlot, err error) {
	x := &buildSlot{
		builder: b, temp: temp, private: private, begun: time.Now().Add(-stampTick), packages: filepath.Join(temp, "packages"),
		refused: make(chan *fetchproxy.Refusal, 1),
	}
	x.proxy, err = fetchproxy.Listen(fetchproxy.Options{Policy: b.fetches, Upstream: b.index.upstream, OnRefusal: func(r *fetchproxy.Refusal) {
		select {
		case x.refused <- r:
		default: // the first one will do
		}
	}})
	if err != nil {
		return nil, err
	}
	if x.slot, err = b.open(ctx, turn, x.proxy.Address().Port()); err != nil {
		x.proxy.Close()
		return nil, err
	}
	x.how = x.slot.how
	defer func() {
		if err != nil {
			x.close()
		}
	}()
	for _, dir := range []string{"home", "tmp", "packages"} {
		if err := os.Mkdir(filepath.Join(temp, dir), 0o700); err != nil {
			return nil, err
		}
	}
	if !x.private {
		if x.packages, x.cacheLock, err = b.cache.takePackages(ctx); err != nil {
			return nil, err
		}
		if err := x.hand(x.packages); err != nil {
			return nil, err
		}
	}
	x.reach = []string{temp, x.packages}
	return x, x.hand(temp)
}

func (x *buildSlot) uid() int {
	if x.slot.uid == nil {
		return 0
	}
	return x.slot.uid.uid
}

// hand gives a file, or a folder with its content, to the build slot's uid if it belongs to another uid.
func (x *buildSlot) hand(dir string) error {
	uid := x.uid()
	if uid == 0 {
		return nil
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == uid && int(st.Gid) == uid {
		return nil
	}
	if !info.IsDir() {
		return os.Lchown(dir, uid, uid)
	}
	return chownAll(dir, uid, uid)
}

// chownAll gives dir and its content to an owner. It follows no link, even if another process changes dir meanwhile.
func chownAll(dir string, uid, gid int) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return root.Lchown(path, uid, gid)
	})
	return errors.Join(err, root.Close())
}

// close ends the processes in the build slot and gives its slot and its package cache back. It reports whether no process is left.
func (x *buildSlot) close() bool {
	clean := x.builder.drop(x.slot)
	x.proxy.Close()
	if x.cacheLock != nil {
		x.cacheLock.Close()
	}
	return clean
}

// buildGrace is the time that a cancelled program has to end.
const buildGrace = time.Second

// buildShares is the CPU weight of a build slot. It is half the default, so that Executions come first.
const buildShares = 512

// confined is what a program in the build slot reaches.
type confined struct {
	writable []string
	// reach may be nil: then it is what the arguments and the environment name.
	reach   []string
	network bool
}

// run is runIn for a program that fills the build slot's folders.
func (x *buildSlot) run(ctx context.Context, network bool, env map[string]string, said io.Writer, argv ...string) (executor.Result, *executor.Failure, error) {
	return x.runIn(ctx, confined{writable: []string{x.temp, x.packages}, network: network}, env, said, argv...)
}

// runIn runs one program in the build slot to its end and writes its output to said. A Failure names the limit that ended the
// program.
func (x *buildSlot) runIn(ctx context.Context, in confined, env map[string]string, said io.Writer, argv ...string) (executor.Result, *executor.Failure, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if in.network {
		own := env
		env = x.proxy.Environment()
		for name, value := range own {
			if _, ours := env[name]; !ours {
				env[name] = value
			}
		}
	}
	watching := make(chan struct{})
	watch, stop := context.WithCancelCause(ctx)
	go func() {
		defer close(watching)
		x.watch(watch, end)
	}()
	refusals := x.endOnRefusal(watch, end)
	if in.reach == nil {
		in.reach = x.reaches(argv, env)
	}
	start := runner.Start{
		ExecutionID: "prepare", Command: argv, Env: env, Path: defaultPath, Network: in.network || x.how.User && !x.how.Box,
		Reach: in.reach, Writable: in.writable,
		Limits: executor.Limits{MemoryBytes: x.builder.config.PrepareMemoryBytes, PIDs: x.builder.config.PreparePIDs, CPUShares: buildShares, OutputBytes: 1 << 20, KillGrace: buildGrace},
	}
	if !x.how.Tmpfs {
		start.Limits.DiskBytes = x.builder.config.EnvironmentBytes // limits a single file; watch measures the rest
	}
	result, err := x.slot.conn.Run(ctx, start, runner.RunInput{}, backend.Output{Stdout: said, Stderr: said})
	stop(nil)
	<-watching
	refusals()
	if failure := over(context.Cause(ctx)); failure != nil {
		return result, failure, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return result, nil, cause
	}
	if err == nil && result.Failure != nil && result.HitLimit() == nil {
		err = executor.Errorf(executor.Internal, "%s: %s", filepath.Base(argv[0]), result.Failure.Message)
	}
	if err == nil {
		if failure := x.look(ctx); failure != nil {
			return result, failure, nil // the program ended between two looks of watch
		}
	}
	return result, nil, err
}

// endOnRefusal ends a program when the proxy refuses an address: uv would ask again for seconds. The returned function waits until that is over.
func (x *buildSlot) endOnRefusal(ctx context.Context, end context.CancelCauseFunc) (wait func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case r := <-x.refused:
			end(overLimit{requirements.Refused(r)})
		case <-ctx.Done():
			select {
			case r := <-x.refused: // the program ended because of it
				end(overLimit{requirements.Refused(r)})
			default:
			}
		}
	})
	return wg.Wait
}

// reaches lists the files and folders that a program uses: those of the build slot, and those that its arguments and its
// environment name. The target of a link is listed too.
func (x *buildSlot) reaches(argv []string, env map[string]string) []string {
	list := slices.Concat(x.reach, argv)
	for _, value := range env {
		for word := range strings.FieldsSeq(value) {
			list = append(list, strings.TrimPrefix(word, "file://"))
		}
	}
	list = slices.DeleteFunc(list, func(path string) bool {
		return !filepath.IsAbs(path) || x.how.Box && (inFolder(path, x.temp) || inFolder(path, x.packages)) // which are writable
	})
	for _, path := range slices.Clone(list) {
		if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
			list = append([]string{real}, list...)
		}
	}
	return list
}

// takePackages takes a package cache that no other build uses, and waits for one until ctx ends. There are several, because one
// uid owns each. Closing held gives the cache back.
func (c *cache) takePackages(ctx context.Context) (dir string, held *lockFile, err error) {
	held, err = waitLock(ctx, func() (*lockFile, error) {
		for n := range parallelBuilds {
			dir = c.packages(n)
			if held, err := tryLock(dir+".lock", unix.LOCK_EX); !errors.Is(err, errHeld) {
				return held, err
			}
		}
		return nil, errHeld
	})
	if err == nil {
		err = errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(dir, 0o700)) //nolint:gosec // a folder
	}
	return dir, held, err
}

// packages returns the folder of package cache number n, counted from 0.
func (c *cache) packages(n int) string {
	if n == 0 {
		return c.wheel
	}
	return c.wheel + "-" + strconv.Itoa(n+1)
}

// lend turns index variables ("NAME=value") into an environment. A file that a variable names, and that the build slot's uid may
// not read, is copied for the build slot. The environment then names the copy.
func (x *buildSlot) lend(variables []string) (map[string]string, error) {
	env := map[string]string{}
	for _, kv := range variables {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
		switch name {
		case "NETRC", "SSL_CERT_FILE", "SSL_CLIENT_CERT", // and those of pip
			"PIP_CONFIG_FILE", "PIP_CERT", "PIP_CLIENT_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE":
		default:
			continue
		}
		if uid := x.uid(); uid != 0 && isFile(value) && !x.how.readable(value, uid) {
			raw, err := os.ReadFile(value)
			if err != nil {
				return nil, err
			}
			env[name] = filepath.Join(x.temp, "home", "."+strings.ToLower(name))
			if err := errors.Join(os.WriteFile(env[name], raw, 0o600), os.Lchown(env[name], uid, uid)); err != nil { //nolint:gosec // the variable is one of the above
				return nil, err
			}
		} else {
			x.reach = append(x.reach, value)
		}
	}
	return env, nil
}

// readable reports whether uid may read a file. In a box the folders above the file do not matter.
func (m mechanisms) readable(path string, uid int) bool {
	real, err := filepath.EvalSymlinks(path)
	if err != nil || !m.Box && closedFolder(filepath.Dir(path), uid)+closedFolder(filepath.Dir(real), uid) != "" {
		return false
	}
	info, err := os.Stat(real)
	return err == nil && info.Mode().Perm()&0o004 != 0
}
