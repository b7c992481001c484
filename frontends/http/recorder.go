package httpfrontend

import (
	"net/http"
	"time"

	"github.com/python-executor/python-executor/core/buffered"
)

// writeIdle is how long a client may take nothing of its answer: who pauses a stream in a terminal has some minutes, who never
// reads on does not hold a connection, and all behind it, for ever.
const writeIdle = 5 * time.Minute

// recorder remembers what was answered, for the access log and to know whether an answer has begun, and bounds how long a
// write may take.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64

	idle  time.Duration
	armed time.Time
	// share is the memory of the request's body; nil: none was opened.
	share *buffered.Share
}

// release gives back the memory of the request's body.
func (r *recorder) release() {
	if r.share != nil {
		r.share.Release()
	}
}

// arm sets the deadline anew when a quarter of it has passed. Not every ResponseWriter has deadlines.
func (r *recorder) arm() {
	if now := time.Now(); now.Sub(r.armed) > r.idle/4 {
		r.armed = now
		_ = http.NewResponseController(r.ResponseWriter).SetWriteDeadline(now.Add(r.idle))
	}
}

// disarm takes the deadline away that a request before on this connection has left.
func (r *recorder) disarm() {
	_ = http.NewResponseController(r.ResponseWriter).SetWriteDeadline(time.Time{})
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= http.StatusOK {
		r.status = status
	}
	r.arm()
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	r.arm()
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
