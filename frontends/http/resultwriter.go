package httpfrontend

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/frontends/http/apijson"
)

// captureMax is how much of each stream a sync call keeps in memory while it follows the log. The answer to a program that writes
// less, which is nearly every program, needs no second pass over the log.
const captureMax = 256 << 10

// textBytes is about how much of a long text is written at once.
const textBytes = 128 << 10

// output is the output of an Execution, in memory or in the log.
type output interface {
	// chunks calls yield for the pieces of one stream, in order, until it returns an error.
	chunks(s executor.Stream, yield func([]byte) error) error
	// displays calls yield for each Display, in order, until it returns an error. It is called after chunks.
	displays(yield func(executor.Display) error) error
}

// capture keeps the output of one Execution as long as it is small.
type capture struct {
	stdout, stderr []byte
	shown          []executor.Display
	shownBytes     int
	over           bool
}

// add keeps the output that e carries.
func (c *capture) add(e executor.Event) {
	switch b := e.Body.(type) {
	case executor.Output:
		buf := &c.stdout
		if b.Stream == executor.Stderr {
			buf = &c.stderr
		}
		if !c.over && len(*buf)+len(b.Data) <= captureMax {
			*buf = append(*buf, b.Data...)
			return
		}
	case executor.Display:
		for _, data := range b.Data {
			c.shownBytes += len(data)
		}
		if !c.over && c.shownBytes <= captureMax {
			c.shown = append(c.shown, b)
			return
		}
	default:
		return
	}
	*c = capture{over: true}
}

// displays implements output.
func (c *capture) displays(yield func(executor.Display) error) error {
	for _, d := range c.shown {
		if err := yield(d); err != nil {
			return err
		}
	}
	return nil
}

// chunks implements output.
func (c *capture) chunks(s executor.Stream, yield func([]byte) error) error {
	data := c.stdout
	if s == executor.Stderr {
		data = c.stderr
	}
	if len(data) == 0 {
		return nil
	}
	return yield(data)
}

// loggedOutput reads the output from the log of e, up to e.LastSeq.
type loggedOutput struct {
	ctx context.Context
	svc executor.Service
	e   executor.Execution
	// passed reports whether a pass has read the log to its end, shown whether it met a Display.
	passed, shown bool
}

func (f *frontend) loggedOutput(ctx context.Context, e executor.Execution) *loggedOutput {
	return &loggedOutput{ctx: ctx, svc: f.svc, e: e}
}

func (l *loggedOutput) chunks(s executor.Stream, yield func([]byte) error) error {
	if s == executor.Stdout && l.e.StdoutBytes == 0 || s == executor.Stderr && l.e.StderrBytes == 0 {
		return nil
	}
	return l.pass(func(b executor.Body) error {
		if o, ok := b.(executor.Output); ok && o.Stream == s {
			return yield(o.Data)
		}
		return nil
	})
}

// displays reads the log again only if an earlier pass met a Display.
func (l *loggedOutput) displays(yield func(executor.Display) error) error {
	if l.passed && !l.shown {
		return nil
	}
	return l.pass(func(b executor.Body) error {
		if d, ok := b.(executor.Display); ok {
			return yield(d)
		}
		return nil
	})
}

// pass calls each for the events of the log.
func (l *loggedOutput) pass(each func(executor.Body) error) error {
	if l.e.LastSeq == 0 {
		return nil
	}
	for event, err := range l.svc.Events(executor.WithBorrowedData(l.ctx), l.e.ID, 0) {
		if err != nil {
			return fmt.Errorf("read the log of %s: %w", l.e.ID, err)
		}
		if _, ok := event.Body.(executor.Display); ok {
			l.shown = true
		}
		if err := each(event.Body); err != nil {
			return err
		}
		if event.Seq >= l.e.LastSeq {
			l.passed = true
			return nil
		}
	}
	return context.Cause(l.ctx)
}

// writeResult answers with the Result of e. The output goes from the log to the connection in pieces, with one pass over the log
// per member. Its size costs no memory.
func (f *frontend) writeResult(w http.ResponseWriter, e executor.Execution, from output) error {
	w.Header().Set("Content-Type", "application/json")
	sent := &begun{Writer: w}
	out := bufio.NewWriterSize(sent, 8<<10)
	if err := encodeResult(out, e, from); err != nil {
		return err
	}
	_ = out.WriteByte('\n')
	if !sent.yes {
		w.Header().Set("Content-Length", strconv.Itoa(out.Buffered()))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	_ = http.NewResponseController(w).Flush() // the client continues while we log; without Flush it gets the answer later
	return nil
}

// encodeResult writes the Result of e as JSON.
func encodeResult(out *bufio.Writer, e executor.Execution, from output) error {
	whole, err := summary(e)
	if err != nil {
		return fmt.Errorf("encode the result of %s: %w", e.ID, err)
	}
	// The output goes before the member that follows it in pyexec.Execution. In a JSON text these quotes would be escaped.
	behind := []byte(`,"stdout_bytes":`)
	head, tail, _ := bytes.Cut(whole, behind)
	// Errors stick to the bufio.Writer and come out of Flush.
	_, _ = out.Write(head)
	broken := map[executor.Stream]bool{}
	streams := []executor.Stream{executor.Stdout, executor.Stderr}
	for _, s := range streams {
		_, _ = fmt.Fprintf(out, `,"%s":"`, s)
		if broken[s], err = writeText(out, from, s); err != nil {
			return err
		}
		_ = out.WriteByte('"')
	}
	for _, s := range streams {
		_, _ = fmt.Fprintf(out, `,"%s_base64":`, s)
		if !broken[s] {
			_, _ = out.WriteString("null")
			continue
		}
		_ = out.WriteByte('"')
		if err := writeBase64(out, from, s); err != nil {
			return err
		}
		_ = out.WriteByte('"')
	}
	if err := writeDisplays(out, from); err != nil {
		return err
	}
	_, _ = out.Write(behind)
	_, err = out.Write(tail)
	return err
}

// begun records whether anything was written.
type begun struct {
	io.Writer
	yes bool
}

// Write implements io.Writer.
func (b *begun) Write(p []byte) (int, error) {
	b.yes = true
	return b.Writer.Write(p)
}

// writeText writes a stream as the inside of a JSON string and reports whether the stream is not UTF-8.
func writeText(out *bufio.Writer, from output, s executor.Stream) (broken bool, err error) {
	var esc textEscaper
	buf := out.AvailableBuffer()
	err = from.chunks(s, func(data []byte) error {
		for len(data) > 0 {
			piece := data[:min(len(data), 16<<10)]
			data = data[len(piece):]
			buf = esc.append(buf, piece)
			if len(buf) < textBytes {
				continue
			}
			if _, err := out.Write(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	if _, err := out.Write(esc.finish(buf)); err != nil {
		return false, err
	}
	return esc.broken, nil
}

func writeBase64(out io.Writer, from output, s executor.Stream) error {
	enc := base64.NewEncoder(base64.StdEncoding, out)
	err := from.chunks(s, func(data []byte) error {
		_, err := enc.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	return enc.Close()
}

// writeDisplays writes the members displays and displays_truncated, one Display in memory at a time.
func writeDisplays(out *bufio.Writer, from output) error {
	var c apijson.Collector
	separator := `,"displays":[`
	err := from.displays(func(d executor.Display) error {
		for _, form := range c.Add(d) {
			raw, err := form.MarshalJSON()
			if err != nil {
				return err
			}
			_, _ = out.WriteString(separator)
			if _, err := out.Write(raw); err != nil {
				return err
			}
			separator = ","
		}
		return nil
	})
	if err != nil {
		return err
	}
	if separator != "," {
		_, _ = out.WriteString(separator)
	}
	_, err = fmt.Fprintf(out, `],"displays_truncated":%t`, c.Truncated)
	return err
}
