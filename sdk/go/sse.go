package pyexec

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"
)

// maxMessage bounds one message of an event stream. The longest a server sends is an output of 256 KiB in escaped JSON,
// or the end of an Execution with very many artifacts.
const maxMessage = 64 << 20

var errTooLong = errors.New("a message of the event stream is too long")

// message is one message of an event stream.
type message struct {
	id, event string
	data      []byte
}

// messages reads Server-Sent Events as the HTML standard defines them. It leaves out comments. It ends with r and drops a message
// that r cuts off.
func messages(r io.Reader) iter.Seq2[message, error] {
	return func(yield func(message, error) bool) {
		lines := bufio.NewReaderSize(r, 32<<10)
		var m message
		var data [][]byte
		size := 0
		for {
			line, err := readLine(lines, maxMessage-size)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(message{}, err)
				return
			}
			size += len(line)
			if len(line) == 0 {
				if len(data) > 0 || m.event != "" || m.id != "" {
					m.data = bytes.Join(data, []byte("\n"))
					if !yield(m, nil) {
						return
					}
				}
				m, data, size = message{}, nil, 0
				continue
			}
			name, value, _ := bytes.Cut(line, []byte(":"))
			value = bytes.TrimPrefix(value, []byte(" "))
			switch string(name) {
			case "id":
				m.id = string(value)
			case "event":
				m.event = string(value)
			case "data":
				data = append(data, value)
			}
		}
	}
}

// readLine returns a line of at most max bytes without its end. It returns io.EOF if r has ended, also within a line.
func readLine(r *bufio.Reader, max int) ([]byte, error) {
	var line []byte
	for {
		piece, err := r.ReadSlice('\n')
		if len(line)+len(piece) > max {
			return nil, errTooLong
		}
		line = append(line, piece...)
		if err == nil {
			return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}
