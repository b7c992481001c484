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
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
)

// box is where one environment is prepared: a slot that no program gets, with a uid of its own where we are root, bounded by a
// control group or resource limits. When the plugin dies its runner ends all that runs in it.
type box struct {
	name   string
	slot   *slot
	drop   func(*slot) bool
	bounds bounds
	// temp is the build's own folder, packages its package cache. private: the cache lies in temp and goes with it.
	temp, packages string
	private        bool
	cacheLock      *os.File
	begun          time.Time
	// reach are the files and folders that the box works with.
	reach []string
	how   mechanisms
}

// stampTick is more than time stamps of files are behind the clock: file systems use the kernel's tick.
const stampTick = 20 * time.Millisecond

// openBox makes a box for temp. What is in temp belongs to the box from then on.
func (b *builder) openBox(ctx context.Context, turn int, temp string) (_ *box, err error) {
	x := &box{name: b.name, drop: b.drop, bounds: b.bounds, temp: temp, private: b.allowBuilds, begun: time.Now().Add(-stampTick), packages: filepath.Join(temp, "packages")}
	if x.slot, err = b.open(ctx, turn); err != nil {
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

func (x *box) uid() int {
	if x.slot.uid == nil {
		return 0
	}
	return x.slot.uid.uid
}

// hand gives a folder and what is in it to the box's uid, if it belongs to another. Nothing else has access to it.
func (x *box) hand(dir string) error {
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

// chownAll gives dir and what is in it to an owner. It leads through no link, whoever else may still write there.
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

// close ends what is left in the box, gives its slot and its package cache back, and reports whether nothing is left.
func (x *box) close() bool {
	clean := x.drop(x.slot)
	if x.cacheLock != nil {
		x.cacheLock.Close()
	}
	return clean
}

// boxGrace is how long what is cancelled gets to end.
const boxGrace = time.Second

// boxShares is the CPU weight of a box: programs come first.
const boxShares = 512

// run runs one program in the box to its end. said gets its output. A Failure says which limit ended it.
func (x *box) run(ctx context.Context, network bool, env map[string]string, said io.Writer, argv ...string) (executor.Result, *executor.Failure, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	watching := make(chan struct{})
	watch, stop := context.WithCancelCause(ctx)
	go func() {
		defer close(watching)
		x.watch(watch, end)
	}()
	start := runner.Start{
		ExecutionID: "prepare", Command: argv, Env: env, Path: defaultPath, Network: network || x.how.User,
		Reach:  x.reaches(argv, env),
		Limits: executor.Limits{MemoryBytes: x.bounds.memory, PIDs: x.bounds.pids, CPUShares: boxShares, OutputBytes: 1 << 20, KillGrace: boxGrace},
	}
	if !x.how.Tmpfs {
		start.Limits.DiskBytes = x.bounds.bytes // of a single file; everything else is watched
	}
	result, err := x.slot.conn.Run(ctx, start, runner.RunInput{}, saySink{to: said})
	stop(nil)
	<-watching
	if failure := over(context.Cause(ctx)); failure != nil {
		return result, failure, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return result, nil, cause
	}
	if err == nil && result.Failure != nil && result.Status != executor.StatusOutOfMemory {
		err = executor.Errorf(executor.Internal, "%s: %s", filepath.Base(argv[0]), result.Failure.Message)
	}
	if err == nil {
		if failure := x.look(ctx); failure != nil {
			return result, failure, nil // it was quicker than the watch
		}
	}
	return result, nil, err
}

// reaches lists the files and folders that a program works with, under their names and behind links: those of the box, and
// those that its arguments and its environment name.
func (x *box) reaches(argv []string, env map[string]string) []string {
	list := slices.Concat(x.reach, argv)
	for _, value := range env {
		for word := range strings.FieldsSeq(value) {
			list = append(list, strings.TrimPrefix(word, "file://"))
		}
	}
	list = slices.DeleteFunc(list, func(path string) bool { return !filepath.IsAbs(path) })
	for _, path := range slices.Clone(list) {
		if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
			list = append([]string{real}, list...)
		}
	}
	return list
}

// saySink passes output on.
type saySink struct {
	executor.Sink // no artifacts are asked for
	to            io.Writer
}

// Emit implements executor.Sink.
func (s saySink) Emit(e executor.Event) error {
	if o, ok := e.Body.(executor.Output); ok {
		_, err := s.to.Write(o.Data)
		return err
	}
	return nil
}

// takePackages takes a package cache that no other build has. There are several, because one uid owns each.
func (c *cache) takePackages(ctx context.Context) (dir string, held *os.File, err error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		for n := range parallelBuilds {
			dir := c.packages(n)
			held, err := tryLock(dir+".lock", unix.LOCK_EX)
			if errors.Is(err, errHeld) {
				continue
			}
			if err == nil {
				err = errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(dir, 0o700)) //nolint:gosec // a folder
			}
			return dir, held, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return "", nil, context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// packages is the folder of package cache number n.
func (c *cache) packages(n int) string {
	if n == 0 {
		return c.wheel
	}
	return c.wheel + "-" + strconv.Itoa(n+1)
}

// lend lets the box read files that index variables name and that only we may read. It returns the variables.
func (x *box) lend(variables []string) (map[string]string, error) {
	env := map[string]string{}
	for _, kv := range variables {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
		switch name {
		case "NETRC", "SSL_CERT_FILE", "SSL_CLIENT_CERT":
		default:
			continue
		}
		if uid := x.uid(); uid != 0 && isFile(value) && !readable(value, uid) {
			raw, err := os.ReadFile(value)
			if err != nil {
				return nil, err
			}
			env[name] = filepath.Join(x.temp, "home", "."+strings.ToLower(name))
			if err := errors.Join(os.WriteFile(env[name], raw, 0o600), os.Lchown(env[name], uid, uid)); err != nil { //nolint:gosec // one of three names
				return nil, err
			}
		} else {
			x.reach = append(x.reach, value)
		}
	}
	return env, nil
}

// readable reports whether uid may read a file.
func readable(path string, uid int) bool {
	real, err := filepath.EvalSymlinks(path)
	if err != nil || passable(filepath.Dir(path), uid) != "" || passable(filepath.Dir(real), uid) != "" {
		return false
	}
	info, err := os.Stat(real)
	return err == nil && info.Mode().Perm()&0o004 != 0
}
