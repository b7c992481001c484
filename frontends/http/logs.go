package httpfrontend

import (
	"context"
	"errors"
	"net/http"

	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// logs serves the raw bytes of one or both streams, in the order of the log.
func (f *frontend) logs(w http.ResponseWriter, r *http.Request, id string) error {
	var asked pyexec.LogsOptions
	if err := readQuery(r, &asked); err != nil {
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
	if asked.Follow {
		w.WriteHeader(http.StatusOK)
		_ = rc.Flush() // the first byte may be long in coming
	} else if e.LastSeq == 0 {
		return nil
	}
	for event, err := range f.svc.Events(executor.WithBorrowedData(ctx), id, 0) {
		if err != nil {
			return err
		}
		if o, ok := event.Body.(executor.Output); ok && (asked.Stream == "both" || string(o.Stream) == asked.Stream) {
			if _, err := w.Write(o.Data); err != nil {
				return nil // the client is gone
			}
			// Output of the past is sent in full buffers, new output at once.
			if asked.Follow && event.Seq >= e.LastSeq {
				if err := rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
					return nil
				}
			}
		}
		if event.Seq == e.LastSeq {
			if !asked.Follow {
				return nil
			}
			_ = rc.Flush()
		}
	}
	// A follower that is cut off must not take this for the end.
	return context.Cause(ctx)
}
