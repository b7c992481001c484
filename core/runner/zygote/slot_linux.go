package zygote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Exit is how a program has ended.
type Exit struct {
	Status syscall.WaitStatus
	// CPU is the time of the process and of those that it has waited for.
	CPU time.Duration
	// MaxRSS is the peak of the resident memory, in bytes.
	MaxRSS int64
}

// Slot is a copy of a Zygote. It runs one program.
type Slot struct {
	zygote *Zygote
	n      int
	own    *net.UnixConn
	pid    int
	exit   Exit
	err    error         // why there is no Exit
	ended  chan struct{} // closed when exit and err are there
	alone  bool          // made by Start
	begun  bool          // it has said something after its request
	// imports belongs to the caller of Run.
	imports []string
}

// RefusedError means that only a new interpreter runs the program as it must be run. The Slot has ended.
type RefusedError struct {
	Why string
	// Clash reports that the main file's folder has a module of the same name as a module that was imported before the fork.
	Clash bool
}

func (e *RefusedError) Error() string { return "only a new interpreter runs it: " + e.Why }

// Start starts an interpreter that waits for Run and runs the program itself. The caller waits for the end of the process, of which Wait
// tells nothing. ctx bounds only the start. After an error the process has ended.
func Start(ctx context.Context, cfg Config) (*Slot, error) {
	z := &Zygote{cfg: cfg}
	if err := z.launch(); err != nil {
		return nil, fmt.Errorf("interpreter: %w", err)
	}
	if err := z.begin(ctx, "alone"); err != nil {
		return nil, err
	}
	s := &Slot{zygote: z, own: z.control, ended: make(chan struct{}), alone: true}
	close(s.ended)
	defer cancelReads(ctx, s.own)()
	words, pid, err := receiveFrom(s.own)
	if err == nil && words[0] != "waiting" {
		err = fmt.Errorf("unknown message %q", words)
	}
	if err != nil {
		z.stop()
		return nil, fmt.Errorf("interpreter: %w", err)
	}
	s.pid = pid
	return s, nil
}

// Next does what Empty does, and then makes a Slot that waits for Run. If ctx ends before, there is none.
func (z *Zygote) Next(ctx context.Context) (*Slot, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	s, err := z.ask(ours, theirs)
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	defer cancelReads(ctx, ours)()
	// The copy's end closes the socket, once the Zygote has closed its own descriptor of it.
	_ = theirs.Close()
	words, pid, err := receiveFrom(ours)
	if err == nil && words[0] == "waiting" {
		s.pid = pid
		return s, nil
	}
	_ = ours.Close() // a copy that comes later sees it and exits
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	_, err = s.Wait(ctx)
	return nil, errors.Join(errors.New("fork server: there is no copy"), err)
}

// ask asks for a copy with the socket theirs.
func (z *Zygote) ask(ours *net.UnixConn, theirs *os.File) (*Slot, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.err != nil {
		return nil, z.err
	}
	z.n++
	s := &Slot{zygote: z, n: z.n, own: ours, ended: make(chan struct{})}
	message := fmt.Appendf(nil, "next\x00%d", s.n)
	if _, _, err := z.control.WriteMsgUnix(message, unix.UnixRights(int(theirs.Fd())), nil); err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	z.slots[s.n] = s
	return s, nil
}

// PID returns the process number, in the namespace of the caller.
func (s *Slot) PID() int { return s.pid }

// Run makes the Slot the program of r. It returns when the program begins. ctx bounds only that. After an error the Slot is of no more
// use. After a *RefusedError the program has not begun. After another error Begun tells, and the caller closes the Slot.
func (s *Slot) Run(ctx context.Context, r Request) error {
	if why := s.zygote.Refuses(r); why != "" {
		s.Close()
		return &RefusedError{Why: why}
	}
	defer cancelReads(ctx, s.own)()
	rights := unix.UnixRights(slices.Concat(r.Files[:], r.Groups)...)
	if _, _, err := s.own.WriteMsgUnix(r.words(s.zygote.cfg.Dir), rights, nil); err != nil {
		return fmt.Errorf("fork server: %w", err)
	}
	words, pid, err := receiveFrom(s.own)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return s.died(ctx)
	case pid == s.pid && words[0] == "exec" && len(words) == 2:
		return &RefusedError{Why: words[1]}
	case pid == s.pid && words[0] == "clash" && len(words) == 2:
		return &RefusedError{Why: words[1] + " is in the folder of the program, and was imported before", Clash: true}
	}
	s.begun = true // it may have
	switch {
	case pid != s.pid:
		return fmt.Errorf("fork server: process %d speaks for the copy %d", pid, s.pid)
	case words[0] != "started":
		return fmt.Errorf("fork server: unknown message %q", words)
	}
	s.imports = modulesOf(words[1:])
	s.Close()
	return nil
}

// Begun reports whether the program may have begun although Run has failed: a copy says so before it does it. No process of the Slot may be
// left, because one could still begin.
func (s *Slot) Begun() bool {
	c, err := s.own.SyscallConn()
	if s.begun || err != nil {
		return true
	}
	err = c.Control(func(fd uintptr) { // a read would heed the end of Run's ctx
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_DONTWAIT)
		s.begun = err == nil && n > 0
	})
	return s.begun || err != nil
}

// Imports lists modules that the main file imports, where Config.Learn asks for them. It is a hint of the copy: names of modules, at most
// maxImports of them. Only the lines without indentation at the beginning of the file count. It is valid after Run.
func (s *Slot) Imports() []string { return s.imports }

// maxImports bounds Slot.Imports.
const maxImports = 32

var module = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$`)

// modulesOf returns those words that are names of modules, each once.
func modulesOf(words []string) (names []string) {
	for _, w := range words[:min(len(words), maxImports)] {
		if len(w) <= 64 && module.MatchString(w) && !slices.Contains(names, w) {
			names = append(names, w)
		}
	}
	return names
}

// died says how a copy has ended that did not begin its program.
func (s *Slot) died(ctx context.Context) error {
	if s.alone {
		return fmt.Errorf("the interpreter has ended: %s", s.zygote.said())
	}
	exit, err := s.Wait(ctx)
	if err != nil {
		return err
	}
	s.zygote.mu.Lock()
	defer s.zygote.mu.Unlock()
	return fmt.Errorf("fork server: the copy has ended (wait status %#x): %s", uint32(exit.Status), s.zygote.complaint)
}

// Wait waits for the end of the program, and of a Slot that runs none.
func (s *Slot) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-s.ended:
		return s.exit, s.err
	case <-ctx.Done():
		return Exit{}, context.Cause(ctx)
	}
}

// Ended is closed when the program has ended. Wait returns at once then.
func (s *Slot) Ended() <-chan struct{} { return s.ended }

// Close ends a Slot that runs no program. It does not end a program. Idempotent.
func (s *Slot) Close() {
	_ = s.own.Close()
	if s.alone {
		_ = s.zygote.output.Close() // read only
	}
}

// endLocked needs the Zygote's lock.
func (s *Slot) endLocked(exit Exit, err error) {
	delete(s.zygote.slots, s.n)
	s.exit, s.err = exit, err
	close(s.ended)
}

// parseExit parses STATUS CPU RSS. The status must be that of an end.
func parseExit(words []string) (Exit, error) {
	var n [3]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(words[i], 10, 64); err != nil {
			return Exit{}, err
		}
	}
	status := syscall.WaitStatus(n[0])
	if n[0] != int64(status) || !status.Exited() && !status.Signaled() {
		return Exit{}, fmt.Errorf("wait status %#x", n[0])
	}
	return Exit{Status: status, CPU: time.Duration(n[1]) * time.Microsecond, MaxRSS: n[2] << 10}, nil
}
