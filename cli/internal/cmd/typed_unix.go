//go:build linux || darwin

package cmd

import (
	"bytes"
	"os"
	"sync"
	"time"
)

// The marks that a terminal puts around what is pasted, and the requests to do so or not.
const (
	pasteBegins, pasteEnds = "\x1b[200~", "\x1b[201~"
	pasteOn, pasteOff      = "\x1b[?2004h", "\x1b[?2004l"
)

// typed stands between the terminal and the editor. It passes on one line at a time, so that the console knows whether more has come: what
// is pasted comes at once, what a person types does not. Pasted tabs become spaces, because Tab is a key of the editor.
type typed struct {
	to *os.File

	mu    sync.Mutex
	more  *sync.Cond
	held  []byte
	ended bool
	// wanted: the editor waits for a line. pasting: the end of what is pasted has not come yet.
	wanted, pasting bool
}

// newTyped returns what the editor reads in place of the terminal at from.
func newTyped(from *os.File) (*typed, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	t := &typed{to: w}
	t.more = sync.NewCond(&t.mu)
	go t.read(from)
	go t.pass()
	return t, r, nil
}

// read takes what comes from the terminal. It ends with the terminal, or with the process.
func (t *typed) read(from *os.File) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		t.mu.Lock()
		t.take(buffer[:n])
		t.ended = err != nil
		t.more.Broadcast()
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// take adds data without the marks of what is pasted. The caller holds the lock.
func (t *typed) take(data []byte) {
	t.held = append(t.held, data...)
	at := 0
	for {
		mark := pasteBegins
		if t.pasting {
			mark = pasteEnds
		}
		i := bytes.Index(t.held[at:], []byte(mark))
		end := len(t.held)
		if i >= 0 {
			end = at + i
		}
		if t.pasting {
			plain := bytes.ReplaceAll(t.held[at:end], []byte("\t"), []byte(indent))
			t.held = append(t.held[:at:at], append(plain, t.held[end:]...)...)
			end = at + len(plain)
		}
		if i < 0 {
			return
		}
		t.held = append(t.held[:end], t.held[end+len(mark):]...)
		t.pasting, at = !t.pasting, end
	}
}

// pass gives the editor what has come, up to the end of a line, whenever it waits for one.
func (t *typed) pass() {
	for {
		t.mu.Lock()
		for !t.ended && (!t.wanted || len(t.held) == 0) {
			t.more.Wait()
		}
		if len(t.held) == 0 { // and nothing more comes
			t.mu.Unlock()
			_ = t.to.Close() // the editor reads the end
			return
		}
		n := len(t.held)
		if i := bytes.IndexAny(t.held, "\r\n\x03"); i >= 0 {
			n, t.wanted = i+1, false
		}
		part := bytes.Clone(t.held[:n])
		t.held = append(t.held[:0], t.held[n:]...)
		t.mu.Unlock()
		if _, err := t.to.Write(part); err != nil {
			return
		}
	}
}

// want says whether the editor waits for a line.
func (t *typed) want(line bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wanted = line
	t.more.Broadcast()
}

// burst is how long the next part of what is pasted may take.
const burst = 50 * time.Millisecond

// pending reports whether more has come than the lines that were read.
func (t *typed) pending() bool {
	late := false
	timer := time.AfterFunc(burst, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		late = true
		t.more.Broadcast()
	})
	defer timer.Stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.held) == 0 && !t.ended && (!late || t.pasting) {
		t.more.Wait()
	}
	return len(t.held) > 0
}
