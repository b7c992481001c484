package httpfrontend

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
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
				b := &body{r: c.from, rc: http.NewResponseController(httptest.NewRecorder()), idle: uploadIdle, slowest: slowest}
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
