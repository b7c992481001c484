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

// IO is the process's surroundings.
type IO struct {
	// In is standard input, nil if there is none; InTerminal: a person types there.
	In         io.Reader
	InTerminal bool
	Out        io.Writer
	// OutTerminal: what is written to Out is read by a person.
	OutTerminal bool
	Err         io.Writer
	// ErrTerminal: progress may be drawn on Err.
	ErrTerminal bool
}

// Main is the whole program. It returns the exit status.
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
	ctx, release := withSignals(context.Background())
	defer release()
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
	root.SetArgs(args)
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
		return exit.BrokenPipe // whoever read it has seen enough
	}
	if message != "" {
		fmt.Fprintln(streams.Err, "python-executor: "+clean(message)+kind(err))
	}
	return status
}

// tellOfStop says, while a command stops in order, how to stop it at once; until the returned function is called.
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

// product is our standard output. It notes that its reader has gone.
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

// kind adds the code where the message alone may not say what went wrong ("execution exe_1").
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

// clean makes a message safe to show on a terminal: control characters, except line ends and tabs, become "?".
func clean(message string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, message)
}
