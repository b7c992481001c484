package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/term"

	"github.com/python-executor/python-executor/cli/internal/app"
	"github.com/python-executor/python-executor/cli/internal/exit"
	"github.com/python-executor/python-executor/cli/internal/stop"
	"github.com/python-executor/python-executor/core/executor"
)

// IO has the standard streams of the process.
type IO struct {
	// In is standard input; nil: there is none. InTerminal reports whether In is a terminal.
	In         io.Reader
	InTerminal bool
	Out        io.Writer
	// OutTerminal reports whether Out is a terminal.
	OutTerminal bool
	Err         io.Writer
	// ErrTerminal reports whether Err is a terminal, on which progress may be drawn.
	ErrTerminal bool
}

// Main runs the whole program and returns the exit status.
func Main(args []string, bundle app.Bundle) int {
	app.SealDescriptors()
	if len(args) > 2 && args[1] == "plugin" {
		if p, ok := bundle.Plugins[args[2]]; ok {
			p.Serve(bundle.Version)
			return exit.OK
		}
		if serve, ok := bundle.Frontends[args[2]]; ok {
			serve(bundle.Version)
			return exit.OK
		}
	}
	if len(args) > 1 && args[1] == "runner" && bundle.Runner != nil {
		return bundle.Runner(args[2:])
	}
	ctx := withSignals(context.Background())
	streams := IO{
		In: os.Stdin, InTerminal: term.IsTerminal(int(os.Stdin.Fd())),
		Out: os.Stdout, OutTerminal: term.IsTerminal(int(os.Stdout.Fd())), Err: os.Stderr, ErrTerminal: term.IsTerminal(int(os.Stderr.Fd())),
	}
	return Execute(ctx, args[1:], streams, bundle)
}

// Execute runs one command and returns the exit status.
func Execute(ctx context.Context, args []string, streams IO, bundle app.Bundle) int {
	out := &product{w: streams.Out}
	streams.Out = out
	g := newGlobal(streams, bundle)
	root := g.root()
	root.SetArgs(withRun(root, args))
	told := g.tellOfStop(ctx)
	err := root.ExecuteContext(ctx)
	told()
	if s, ok := errors.AsType[interrupted](stop.Cause(ctx)); ok {
		return s.status()
	}
	if s, ok := errors.AsType[interrupted](context.Cause(ctx)); ok && err != nil {
		if carried, ok := errors.AsType[*exit.Error](err); !ok || carried.Err != nil {
			return s.status()
		}
	}
	status, message := exit.Of(err)
	if status == exit.Ours && out.gone.Load() {
		return exit.BrokenPipe // the reader of standard output is gone
	}
	if message != "" {
		fmt.Fprintln(streams.Err, "python-executor: "+clean(message)+kind(err))
	}
	return status
}

// tellOfStop prints how to end a command immediately when it begins to stop, until the returned function is called.
func (g *global) tellOfStop(ctx context.Context) (end func()) {
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, c := range []<-chan struct{}{g.settled, stop.Listening(ctx)} {
			select {
			case <-c:
			case <-ended:
				return
			}
		}
		if !g.logs {
			g.note("stopping: Ctrl-C or SIGTERM again to end at once")
		}
	})
	return func() {
		close(ended)
		wg.Wait()
	}
}

// product is standard output. It remembers that its reader is gone.
type product struct {
	w    io.Writer
	gone atomic.Bool
}

// Write implements io.Writer.
func (p *product) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	if err != nil && brokenPipe(err) {
		p.gone.Store(true)
	}
	return n, err
}

// kind returns the code of err for a message that may not name the problem, such as "execution exe_1".
func kind(err error) string {
	if _, ok := errors.AsType[*url.Error](err); ok && executor.CodeOf(err) == executor.Unavailable {
		return " (unavailable: check --server or PYEXEC_SERVER, and that python-executor serve runs there)"
	}
	switch code := executor.CodeOf(err); code {
	case "", executor.Invalid, executor.Internal:
		return ""
	case executor.Unauthenticated:
		return " (unauthenticated: set PYEXEC_TOKEN to a token of that server)"
	default:
		return " (" + string(code) + ")"
	}
}

// clean makes a message safe for a terminal. It replaces control characters, except line ends and tabs, by "?".
func clean(message string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, message)
}
