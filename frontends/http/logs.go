package httpfrontend

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/python-executor/python-executor/core/executor"
)

// logs serves the raw bytes of one or both streams, in the order of the log.
func (f *frontend) logs(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	stream, follow, err := logsQuery(r)
	if err != nil {
		return err
	}
	e, err := f.svc.Get(r.Context(), id)
	if err != nil {
		return err
	}
	ctx, cancel := f.following(r.Context(), id)
	defer cancel(nil)
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/octet-stream")
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	if follow {
		w.WriteHeader(http.StatusOK)
		_ = rc.Flush() // the first byte may be long in coming
	} else if e.LastSeq == 0 {
		return nil
	}
	for event, err := range f.svc.Events(ctx, id, 0) {
		if err != nil {
			return err
		}
		if o, ok := event.Body.(executor.Output); ok && (stream == "" || o.Stream == stream) {
			if _, err := w.Write(o.Data); err != nil {
				return nil // the client is gone
			}
			// What is behind in the log goes out in full buffers; what happens now goes out now.
			if follow && event.Seq >= e.LastSeq {
				if err := rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
					return nil
				}
			}
		}
		if event.Seq == e.LastSeq {
			if !follow {
				return nil
			}
			_ = rc.Flush()
		}
	}
	// A follower that is cut off must not look like one that saw the end.
	return context.Cause(ctx)
}

func logsQuery(r *http.Request) (stream executor.Stream, follow bool, err error) {
	q, err := queryOf(r)
	if err != nil {
		return "", false, err
	}
	var bad []executor.FieldError
	switch v := q.Get("stream"); v {
	case "", "both":
	case string(executor.Stdout), string(executor.Stderr):
		stream = executor.Stream(v)
	default:
		bad = append(bad, executor.FieldError{Field: "stream", Message: "must be stdout, stderr or both"})
	}
	if v := q.Get("follow"); v != "" {
		if follow, err = strconv.ParseBool(v); err != nil {
			bad = append(bad, executor.FieldError{Field: "follow", Message: "must be true or false"})
		}
	}
	return stream, follow, queryError(bad)
}
