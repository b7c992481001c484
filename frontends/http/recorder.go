package httpfrontend

import (
	"net/http"
	"time"

	"github.com/python-executor/python-executor/core/buffered"
)

// writeIdle is how long a client may read nothing of its answer. A user can pause a stream in a terminal for some minutes. A client
// that never reads again does not hold its connection for ever.
const writeIdle = 5 * time.Minute

// recorder notes the status and the size of an answer, for the access log and for errors after an answer has begun. It also bounds
// the time of a write.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64

	idle  time.Duration
	armed time.Time
	// share is the memory of the request's body; nil: none was opened.
	share *buffered.Share
}

// release returns the memory of the request's body to the budget.
func (r *recorder) release() {
	if r.share != nil {
		r.share.Release()
	}
}

// arm renews the deadline when a quarter of it has passed. Some ResponseWriters have no deadlines.
func (r *recorder) arm() {
	if now := time.Now(); now.Sub(r.armed) > r.idle/4 {
		r.armed = now
		_ = http.NewResponseController(r.ResponseWriter).SetWriteDeadline(now.Add(r.idle))
	}
}

// disarm removes the deadline of an earlier request on the same connection.
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
