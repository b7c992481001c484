package httpfrontend

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"

	"github.com/python-executor/python-executor/core/executor"
)

// captureMax is how much of each stream a sync call keeps in memory while it follows the log. A program that writes less,
// which is nearly every one, has its answer written without the log being read again.
const captureMax = 256 << 10

// capture keeps the output of one Execution as long as it is small.
type capture struct {
	stdout, stderr []byte
	over           bool
}

func (c *capture) add(o executor.Output) {
	buf := &c.stdout
	if o.Stream == executor.Stderr {
		buf = &c.stderr
	}
	if c.over || len(*buf)+len(o.Data) > captureMax {
		*c = capture{over: true}
		return
	}
	*buf = append(*buf, o.Data...)
}

// chunks calls yield for the pieces of one stream, in order, until it returns an error.
type chunks func(s executor.Stream, yield func([]byte) error) error

// chunks serves the pieces from memory.
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

// logChunks serves the pieces from e's log, as far as e knows it.
func (f *frontend) logChunks(ctx context.Context, e executor.Execution) chunks {
	return func(s executor.Stream, yield func([]byte) error) error {
		if e.LastSeq == 0 {
			return nil
		}
		for event, err := range f.svc.Events(ctx, e.ID, 0) {
			if err != nil {
				return fmt.Errorf("read the log of %s: %w", e.ID, err)
			}
			if o, ok := event.Body.(executor.Output); ok && o.Stream == s {
				if err := yield(o.Data); err != nil {
					return err
				}
			}
			if event.Seq >= e.LastSeq {
				return nil
			}
		}
		return context.Cause(ctx)
	}
}

// writeResult answers with the Result of e. The output goes from the log to the connection a piece at a time, in a pass
// per member, so that its size costs no memory.
func (f *frontend) writeResult(w http.ResponseWriter, e executor.Execution, output chunks) error {
	head, tail, err := marshalParts(e)
	if err != nil {
		return fmt.Errorf("encode the result of %s: %w", e.ID, err)
	}
	w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriterSize(w, 8<<10)
	// Errors stick to the bufio.Writer and come out of Flush.
	_, _ = out.Write(head)
	broken := map[executor.Stream]bool{}
	streams := []executor.Stream{executor.Stdout, executor.Stderr}
	for _, s := range streams {
		_, _ = fmt.Fprintf(out, `,"%s":"`, s)
		if broken[s], err = writeText(out, output, s); err != nil {
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
		if err := writeBase64(out, output, s); err != nil {
			return err
		}
		_ = out.WriteByte('"')
	}
	_ = out.WriteByte(',')
	_, _ = out.Write(tail)
	_ = out.WriteByte('\n')
	return out.Flush()
}

// writeText writes a stream as the inside of a JSON string and reports whether it was not UTF-8.
func writeText(out *bufio.Writer, output chunks, s executor.Stream) (broken bool, err error) {
	var esc textEscaper
	buf := make([]byte, 0, 4<<10)
	err = output(s, func(data []byte) error {
		for len(data) > 0 {
			piece := data[:min(len(data), 16<<10)]
			data = data[len(piece):]
			buf = esc.append(buf[:0], piece)
			if _, err := out.Write(buf); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	if _, err := out.Write(esc.finish(buf[:0])); err != nil {
		return false, err
	}
	return esc.broken, nil
}

func writeBase64(out io.Writer, output chunks, s executor.Stream) error {
	enc := base64.NewEncoder(base64.StdEncoding, out)
	err := output(s, func(data []byte) error {
		_, err := enc.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	return enc.Close()
}
