package httpfrontend

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slowReader gives at most size bytes after every pause.
type slowReader struct {
	pause time.Duration
	size  int
}

func (r slowReader) Read(p []byte) (int, error) {
	time.Sleep(r.pause)
	return min(len(p), r.size), nil
}

func TestATrickleIsGivenUpAndASlowUploadIsNot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		from  slowReader
		gives bool
	}{
		{"a byte every ten seconds", slowReader{10 * time.Second, 1}, false},
		{"a byte just before the client would be silent for too long", slowReader{uploadIdle - time.Second, 1}, false},
		{"2 KiB a second", slowReader{time.Second, 2 << 10}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newConnection(c.from)
				b := &body{r: client, rc: http.NewResponseController(client), idle: uploadIdle, minRate: minRate}
				began := time.Now()
				n, err := io.CopyN(io.Discard, b, 4<<20)
				switch {
				case c.gives && err != nil:
					t.Errorf("given up after %d bytes and %s: %v", n, time.Since(began), err)
				case !c.gives && (!errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) > 2*uploadIdle):
					t.Errorf("%v after %d bytes and %s", err, n, time.Since(began))
				}
			})
		})
	}
}

func TestABodyThatIsStoppedIsReadNoMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := newConnection(strings.NewReader(""))
		b := &body{r: client, rc: http.NewResponseController(client), idle: uploadIdle, minRate: minRate}
		began := time.Now()
		time.AfterFunc(uploadIdle/2, b.stop) // so late that a Read would set its deadline anew
		for range 3 {
			if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != uploadIdle/2 {
				t.Errorf("a Read of a body that is stopped after %s: %v after %s", uploadIdle/2, err, time.Since(began))
			}
		}
	})
}

func TestABodyIsReadOnWithoutADeadlineBehindASilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := newConnection(slowReader{uploadIdle - time.Second, 1})
		b := &body{r: client, rc: http.NewResponseController(client), idle: uploadIdle, minRate: minRate}
		if _, err := io.Copy(io.Discard, b); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		client.mu.Lock()
		defer client.mu.Unlock()
		if client.deadline != nil {
			t.Error("the connection of a body that was given up keeps its deadline")
		}
	})
}
