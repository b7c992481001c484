package zygote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Config says what a Zygote runs.
type Config struct {
	// Interpreter is the absolute path of a Python.
	Interpreter string
	// Entrypoint is the argument that follows it: a file, relative to Dir.
	Entrypoint string
	// Dir is the folder of the programs. Its path counts, not the folder: it may be another one for each program.
	Dir string
	// Env are the variables that most programs have, as "NAME=value", each name once. PYTHONPATH is not allowed.
	Env []string
	// Preimport lists modules to import before the first copy. Those that do not exist are left out.
	Preimport []string
	// Learned is as Preimport, but modules whose import fails with any error are left out.
	Learned []string
	// Learn makes copies say what their main files import (Slot.Imports).
	Learn bool
	// Launch starts the interpreter.
	Launch func(Command) (Process, error)
}

func (c Config) argv() []string { return []string{c.Interpreter, c.Entrypoint} }

// Command is what Config.Launch starts.
type Command struct {
	Path string
	Argv []string
	Env  []string
	Dir  string
	// Files become the descriptors 0, 1, 2 and so on. No other descriptor may be open. New closes them.
	Files []*os.File
}

// Process is a started interpreter.
type Process interface {
	// Kill kills it. It may be called at any time.
	Kill() error
	// Wait returns after its end. It is called once.
	Wait() error
}

// Zygote is an interpreter that can be forked. Its methods may be called concurrently.
type Zygote struct {
	cfg         Config
	process     Process
	control     *net.UnixConn
	output      *os.File
	startupCode string
	// imported lists the modules of Config.Preimport and Config.Learned that are there.
	imported []string

	mu sync.Mutex // also held while a message to the Zygote is written
	n  int
	// complaint is the last output of the interpreter.
	complaint string
	slots     map[int]*Slot
	empty     []chan struct{} // each is closed by the next message empty

	gone chan struct{} // closed when the Zygote does not answer any more
	err  error         // after gone
	all  sync.WaitGroup
	end  sync.Once
}

// ErrGone means that the Zygote has ended. Slots that have not ended before have ended with it.
var ErrGone = errors.New("the fork server has ended")

// ErrMoved means that Config.Dir was removed or unmounted while the interpreter started.
var ErrMoved = errors.New("the folder is gone")

// New starts a Zygote and waits until it can be forked. ctx bounds only the start. After an error nothing is left.
func New(ctx context.Context, cfg Config) (*Zygote, error) {
	z := &Zygote{cfg: cfg, slots: map[int]*Slot{}, gone: make(chan struct{})}
	if err := z.launch(); err != nil {
		return nil, fmt.Errorf("fork server: %w", err)
	}
	word := "start"
	if cfg.Learn {
		word = "learn"
	}
	if err := z.begin(ctx, word); err != nil {
		return nil, err
	}
	z.all.Go(z.read)
	z.all.Go(z.drain)
	return z, nil
}

// launch starts the process.
func (z *Zygote) launch() error {
	for _, kv := range z.cfg.Env {
		if strings.HasPrefix(kv, "PYTHONPATH=") {
			return errors.New("PYTHONPATH must not be set")
		}
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	files := []*os.File{nil, nil, nil, theirs, nil}
	defer func() {
		for _, f := range files {
			_ = f.Close() // a nil file says so
		}
	}()
	z.control = ours
	var errNull, errPipe, errProgram error
	files[0], errNull = os.Open(os.DevNull)
	z.output, files[1], errPipe = os.Pipe()
	files[2] = files[1]
	files[4], errProgram = programFile()
	err = errors.Join(errNull, errPipe, errProgram)
	if err == nil {
		z.process, err = z.cfg.Launch(Command{
			Path: z.cfg.Interpreter, Argv: z.cfg.argv(), Dir: z.cfg.Dir, Files: files,
			Env: envAtStart(z.cfg.Env),
		})
	}
	if err != nil {
		_, _ = z.control.Close(), z.output.Close()
	}
	return err
}

// envAtStart returns the variables of the interpreter at its start. HOME names no folder then: the module site would run what the files of
// a program that comes meanwhile have in ~/.local. sitecustomize.py restores the variable.
func envAtStart(env []string) []string {
	const home = "HOME="
	at := []string{"PYTHONPATH=/proc/self/fd/4"}
	i := slices.IndexFunc(env, func(kv string) bool { return strings.HasPrefix(kv, home) })
	if i < 0 {
		return slices.Concat(at, env, []string{home + "/nonexistent"})
	}
	return slices.Concat(at, []string{"PYEXEC_" + env[i]}, env[:i], []string{home + "/nonexistent"}, env[i+1:])
}

// begin sends the first message, which begins with word, and takes the answer. After an error nothing is left.
func (z *Zygote) begin(ctx context.Context, word string) error {
	words, err := z.greet(ctx, word)
	said := z.said()
	if err == nil && said != "" {
		err = errors.New("the start of the interpreter writes output")
	}
	if err != nil {
		z.stop()
		return fmt.Errorf("fork server: %w: %s", err, said)
	}
	z.startupCode, z.imported = words[1], words[2:]
	return nil
}

// greet sends the first message and returns the words of the answer.
func (z *Zygote) greet(ctx context.Context, word string) ([]string, error) {
	defer cancelReads(ctx, z.control)()
	words := append([]string{word}, z.cfg.Preimport...)
	for _, name := range z.cfg.Learned {
		words = append(words, "?"+name)
	}
	first := strings.Join(words, "\x00")
	if _, err := z.control.Write([]byte(first)); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	words, err := receive(z.control)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, ErrGone
	case words[0] == "moved":
		return nil, ErrMoved
	case words[0] != "ready" || len(words) < 2:
		return nil, fmt.Errorf("unknown answer %q", words)
	}
	return words, nil
}

// said returns what the interpreter has written so far.
func (z *Zygote) said() string {
	text, n := make([]byte, 4<<10), 0
	if c, err := z.output.SyscallConn(); err == nil {
		// The pipe does not block, so an empty one is an error.
		_ = c.Read(func(fd uintptr) bool {
			n, _ = unix.Read(int(fd), text)
			return true
		})
	}
	n = max(n, 0)
	return strings.TrimSpace(string(text[:n]))
}

// drain reads what the interpreter writes, and keeps the last of it. It writes only errors of sitecustomize.py.
func (z *Zygote) drain() {
	text := make([]byte, 4<<10)
	for {
		n, err := z.output.Read(text)
		if err != nil {
			return
		}
		z.mu.Lock()
		z.complaint = strings.TrimSpace(string(text[:n]))
		z.mu.Unlock()
	}
}

// read gives the Zygote's messages to those that wait for them.
func (z *Zygote) read() {
	for {
		words, err := receive(z.control)
		if err != nil {
			z.fail(ErrGone)
			return
		}
		if err := z.take(words); err != nil {
			z.fail(err)
			return
		}
	}
}

func (z *Zygote) take(words []string) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	if words[0] == "empty" && len(z.empty) > 0 {
		close(z.empty[0])
		z.empty = z.empty[1:]
		return nil
	}
	unknown := fmt.Errorf("fork server: unknown message %q", words)
	if len(words) < 3 {
		return unknown
	}
	n, err := strconv.Atoi(words[1])
	s := z.slots[n]
	if err != nil || s == nil {
		return unknown
	}
	switch {
	case words[0] == "failed":
		s.endLocked(Exit{}, fmt.Errorf("fork: %s", words[2]))
	case words[0] == "exited" && len(words) == 5:
		exit, err := parseExit(words[2:])
		if err != nil {
			return unknown
		}
		s.endLocked(exit, nil)
	default:
		return unknown
	}
	return nil
}

// fail ends all that waits for the Zygote.
func (z *Zygote) fail(err error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.err = err
	close(z.gone)
	for _, s := range z.slots {
		s.endLocked(Exit{}, err)
	}
}

// Gone is closed when the Zygote has ended.
func (z *Zygote) Gone() <-chan struct{} { return z.gone }

// Empty kills all copies, and as PID 1 all processes of its namespace. It returns when nothing is left.
func (z *Zygote) Empty(ctx context.Context) error {
	done := make(chan struct{})
	z.mu.Lock()
	z.empty = append(z.empty, done)
	_, err := z.control.Write([]byte("end"))
	z.mu.Unlock()
	if err != nil {
		return fmt.Errorf("fork server: %w", err)
	}
	select {
	case <-done:
		return nil
	case <-z.gone:
		return z.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends the Zygote and all copies. It returns when they have ended. Idempotent.
func (z *Zygote) Close() error {
	z.end.Do(func() {
		z.stop()
		z.all.Wait()
	})
	return nil
}

// stop ends the process. The end of its control socket lets it end its copies before.
func (z *Zygote) stop() {
	_ = z.control.Close()
	const patience = 5 * time.Second
	t := time.AfterFunc(patience, func() { _ = z.process.Kill() })
	_ = z.process.Wait() // its exit code says nothing new
	t.Stop()
	_ = z.output.Close()
}

// socketPair returns a connection, and the file of its other end.
func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket pair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "fork server")
	ours := os.NewFile(uintptr(fds[0]), "fork server")
	defer ours.Close()
	err = syscall.SetsockoptInt(fds[0], syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1)
	if err == nil {
		var c net.Conn
		if c, err = net.FileConn(ours); err == nil {
			return c.(*net.UnixConn), theirs, nil
		}
	}
	_ = theirs.Close()
	return nil, nil, fmt.Errorf("socket pair: %w", err)
}

// receive returns the words of the next message.
func receive(c *net.UnixConn) ([]string, error) {
	words, _, err := receiveFrom(c)
	return words, err
}

// receiveFrom also returns the process number of the sender.
func receiveFrom(c *net.UnixConn) (words []string, pid int, err error) {
	// The kernel puts the sender in front. It closes descriptors, for which there is no room.
	data, control := make([]byte, 4<<10), make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	n, nc, _, _, err := c.ReadMsgUnix(data, control)
	if err != nil || n == 0 {
		return nil, 0, errors.Join(err, net.ErrClosed)
	}
	if all, err := unix.ParseSocketControlMessage(control[:nc]); err == nil {
		for _, m := range all {
			if cred, err := unix.ParseUnixCredentials(&m); err == nil {
				pid = int(cred.Pid)
			}
		}
	}
	return strings.Split(string(data[:n]), "\x00"), pid, nil
}

// cancelReads ends reads of c when ctx ends, until stop is called.
func cancelReads(ctx context.Context, c *net.UnixConn) (stop func()) {
	cancel := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	return func() {
		if !cancel() {
			return
		}
		_ = c.SetReadDeadline(time.Time{})
	}
}
