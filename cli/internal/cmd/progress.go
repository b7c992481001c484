package cmd

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// progress draws one line on a terminal, and erases it before other output. Without a terminal it writes nothing, except with
// --verbose: then it writes a line for each new message.
type progress struct {
	w        io.Writer
	terminal bool
	lines    bool
	now      func() time.Time

	mu    sync.Mutex
	shown string
	last  time.Time
	done  bool
}

// redraw is the minimum time between two updates of the line.
const redraw = 100 * time.Millisecond

func newProgress(g *global) *progress {
	return &progress{w: g.Err, terminal: g.ErrTerminal && !g.quiet && !g.verbose, lines: g.verbose, now: time.Now}
}

// show draws e, unless it is unchanged or the last update is too recent.
func (p *progress) show(e executor.Progress) {
	text := clean(strings.ReplaceAll(e.Message, "\n", " "))
	if text == "" {
		text = string(e.Phase)
	}
	p.draw(text, amount(e))
}

func (p *progress) draw(text, detail string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return
	}
	switch {
	case p.terminal:
		line := text
		if detail != "" {
			line += " " + detail
		}
		now := p.now()
		if line == p.shown || p.shown != "" && now.Sub(p.last) < redraw {
			return
		}
		if runes := []rune(line); len(runes) > 78 {
			line = string(runes[:77]) + "…"
		}
		fmt.Fprintf(p.w, "\r%s\x1b[K", line)
		p.shown, p.last = line, now
	case p.lines && text != p.shown:
		fmt.Fprintf(p.w, "python-executor: %s\n", strings.TrimSpace(text+" "+detail))
		p.shown = text
	}
}

// end erases the line. Nothing is drawn after it.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal && p.shown != "" && !p.done {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	p.done = true
}

// amount renders done and total in their unit.
func amount(e executor.Progress) string {
	one := func(n int64) string {
		if e.Unit == "bytes" {
			return size(n)
		}
		return fmt.Sprint(n)
	}
	unit := e.Unit
	if unit == "bytes" {
		unit = ""
	}
	switch {
	case e.Total > 0 && e.Unit == "bytes":
		return fmt.Sprintf("%s of %s (%d %%)", one(e.Done), one(e.Total), e.Done*100/e.Total)
	case e.Total > 0:
		return strings.TrimSpace(fmt.Sprintf("%s of %s %s", one(e.Done), one(e.Total), unit))
	case e.Done > 0:
		return strings.TrimSpace(one(e.Done) + " " + unit)
	default:
		return ""
	}
}

// size formats n bytes with a unit.
func size(n int64) string {
	const units = "kMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/1024, 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	return fmt.Sprintf("%.1f %ciB", f, units[i])
}

// counted returns s with a reader that draws how much was read.
func (p *progress) counted(s *executor.Source) *executor.Source {
	if s == nil || !p.terminal && !p.lines {
		return s
	}
	c := *s
	c.Open = func() (io.ReadCloser, error) {
		r, err := s.Open()
		if err != nil {
			return nil, err
		}
		return &countingReader{ReadCloser: r, p: p, total: s.SizeBytes}, nil
	}
	return &c
}

type countingReader struct {
	io.ReadCloser
	p           *progress
	done, total int64
}

// Read implements io.Reader.
func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.done += int64(n)
	c.p.draw("uploading", amount(executor.Progress{Done: c.done, Total: c.total, Unit: "bytes"}))
	return n, err
}
