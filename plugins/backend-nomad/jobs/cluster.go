package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/executor"
)

// The pauses between two attempts of a request.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// patience is how long requests are tried again while Nomad is away. A server that starts again, and the election of a leader, take less.
const patience = 5 * time.Minute

// cluster makes the requests to Nomad. Errors are those of Nomad's client; refusal makes them errors of this backend.
type cluster struct {
	client *api.Client
	// pause waits before another attempt; tests replace it.
	pause func(ctx context.Context, attempt int) error
}

func newCluster(client *api.Client) *cluster { return &cluster{client: client, pause: backoff} }

// backoff waits longer with each attempt. It returns the cause of ctx if that ends first.
func backoff(ctx context.Context, attempt int) error {
	timer := time.NewTimer(min(minPause<<min(attempt, 10), maxPause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func query(ctx context.Context) *api.QueryOptions { return (&api.QueryOptions{}).WithContext(ctx) }

func write(ctx context.Context) *api.WriteOptions { return (&api.WriteOptions{}).WithContext(ctx) }

// retry calls op until it succeeds, fails for good, or Nomad has been away for patience. The end of ctx ends it.
func (n *cluster) retry(ctx context.Context, op func(ctx context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for attempt := 0; ; attempt++ {
		err := op(within)
		if err == nil || !temporary(err) {
			return err
		}
		if within.Err() != nil || n.pause(within, attempt) != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

// passing are words of errors that Nomad reports with status 500, and that pass by themselves.
var passing = []string{
	"no cluster leader", "leadership", "no path to", "failed to get conn", "rpc error", "connection refused", "connection reset", "broken pipe",
	"eof", "timeout", "not ready to serve", "raft", "node is not ready", "no known server", "shutting down", "session shutdown",
}

// temporary reports whether a request may succeed later: Nomad was not reached, has no leader, or is busy.
func temporary(err error) bool {
	code, body := answer(err)
	switch code {
	case 0:
		return true
	case http.StatusNotFound:
		return strings.Contains(strings.ToLower(body), "no path to") // a node that is not connected now
	case http.StatusInternalServerError:
		body = strings.ToLower(body)
		return slices.ContainsFunc(passing, func(words string) bool { return strings.Contains(body, words) })
	}
	return code > http.StatusInternalServerError || code == http.StatusTooManyRequests
}

// answer returns the status and the text of Nomad's answer; 0 if there was none.
func answer(err error) (code int, body string) {
	if e, ok := errors.AsType[api.UnexpectedResponseError](err); ok && e.HasStatusCode() {
		return e.StatusCode(), strings.TrimSpace(e.Body())
	}
	if e, ok := errors.AsType[streamError](err); ok {
		return http.StatusInternalServerError, string(e)
	}
	return 0, ""
}

func notFound(err error) bool {
	code, _ := answer(err)
	return code == http.StatusNotFound
}

// refusal returns the error of a request that failed for good, in Nomad's words.
func refusal(what string, err error) error {
	code, body := answer(err)
	switch code {
	case 0:
		return executor.Errorf(executor.Unavailable, "%s: Nomad is not reached: %w", what, err)
	case http.StatusForbidden, http.StatusUnauthorized:
		return executor.Errorf(executor.Unavailable, "%s: Nomad's ACL does not allow it; see deploy/nomad for the rights: %s", what, body)
	}
	return executor.Errorf(executor.Unavailable, "%s: Nomad answered %d: %s", what, code, body)
}

// errExists is the error of a job that exists already.
var errExists = errors.New("the job exists")

// register makes a new job, and returns its index and evaluation. An answer that was lost shows as errExists at the next attempt.
func (n *cluster) register(ctx context.Context, j *api.Job) (index uint64, eval string, err error) {
	err = n.retry(ctx, func(ctx context.Context) error {
		r, _, err := n.client.Jobs().EnforceRegister(j, 0, write(ctx))
		if err != nil {
			if _, body := answer(err); strings.Contains(body, "job already exists") {
				return fmt.Errorf("%w: %w", errExists, err)
			}
			return err
		}
		index, eval = r.JobModifyIndex, r.EvalID
		return nil
	})
	return index, eval, err
}

// info returns a job; nil if there is none.
func (n *cluster) info(ctx context.Context, id string) (found *api.Job, err error) {
	err = n.retry(ctx, func(ctx context.Context) error {
		found, _, err = n.client.Jobs().Info(id, query(ctx))
		return err
	})
	if notFound(err) {
		return nil, nil
	}
	return found, err
}

// deregister stops a job; with purge it also removes the job. A job that does not exist is no error.
func (n *cluster) deregister(ctx context.Context, id string, purge bool) error {
	err := n.retry(ctx, func(ctx context.Context) error {
		_, _, err := n.client.Jobs().Deregister(id, purge, write(ctx))
		return err
	})
	if notFound(err) {
		return nil
	}
	return err
}

// forget makes a node remove the files of an ended allocation.
func (n *cluster) forget(ctx context.Context, alloc string) error {
	r, err := n.client.Raw().Response("/v1/client/allocation/"+alloc+"/gc", query(ctx))
	if err != nil {
		return err
	}
	return r.Close()
}

// allocationsOf returns the allocations and evaluations of a job; also those of a former job of that name.
func (n *cluster) allocationsOf(ctx context.Context, id string) (found []*api.AllocationListStub, evals []*api.Evaluation, err error) {
	err = n.retry(ctx, func(ctx context.Context) (err error) {
		if found, _, err = n.client.Jobs().Allocations(id, true, query(ctx)); err != nil {
			return err
		}
		evals, _, err = n.client.Jobs().Evaluations(id, query(ctx))
		return err
	})
	return found, evals, err
}

// open returns the content of a file of an allocation from offset on: what there is now, or with follow also what comes later. It comes in
// frames. The answer of fs/readat cannot be used: an error is in the content there, with status 200. The server passes the request on to
// the node, so that nothing but the server must be reached. A connection to the node that breaks may look like the end of the file.
func (n *cluster) open(ctx context.Context, alloc, path string, offset int64, follow bool) (io.ReadCloser, error) {
	values := url.Values{"path": {path}, "offset": {strconv.FormatInt(offset, 10)}, "origin": {"start"}, "follow": {strconv.FormatBool(follow)}}
	body, err := n.client.Raw().Response("/v1/client/fs/stream/"+alloc+"?"+values.Encode(), query(ctx))
	if err != nil {
		return nil, err
	}
	return &frames{body: body, in: json.NewDecoder(body)}, nil
}

// size returns the present size of a file of an allocation.
func (n *cluster) size(ctx context.Context, alloc, path string) (int64, error) {
	var info api.AllocFileInfo
	_, err := n.client.Raw().Query("/v1/client/fs/stat/"+alloc+"?"+url.Values{"path": {path}}.Encode(), &info, query(ctx))
	return info.Size, err
}

// end returns the last bytes of a file that is whole, at most limit.
func (n *cluster) end(ctx context.Context, alloc, path string, limit int64) (raw []byte, err error) {
	err = n.retry(ctx, func(ctx context.Context) error {
		size, err := n.size(ctx, alloc, path)
		if err != nil {
			return err
		}
		limit := min(limit, size)
		body, err := n.open(ctx, alloc, path, size-limit, false)
		if err != nil {
			return err
		}
		defer body.Close() //nolint:errcheck // read only
		raw = make([]byte, limit)
		if _, err = io.ReadFull(body, raw); errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	return raw, err
}

// frames reads the data of a stream of frames.
type frames struct {
	body io.ReadCloser
	in   *json.Decoder
	left []byte
}

// errChanged is the error of a file that is not what it was.
var errChanged = errors.New("the file was removed or cut")

// Read implements io.Reader.
func (f *frames) Read(p []byte) (int, error) {
	for len(f.left) == 0 {
		var frame api.StreamFrame
		if err := f.in.Decode(&frame); err != nil {
			return 0, f.failed(err)
		}
		if frame.FileEvent != "" {
			return 0, fmt.Errorf("%w: %s", errChanged, frame.FileEvent)
		}
		f.left = frame.Data
	}
	n := copy(p, f.left)
	f.left = f.left[n:]
	return n, nil
}

// failed returns the error of a frame that cannot be read: Nomad's words, if they are in the frame's place.
func (f *frames) failed(err error) error {
	if _, ok := errors.AsType[*json.SyntaxError](err); !ok {
		return err
	}
	words, _ := io.ReadAll(io.LimitReader(io.MultiReader(f.in.Buffered(), f.body), 1<<10)) // what there is of them
	return streamError(bytes.TrimSpace(words))
}

// streamError is an error that Nomad has sent in a stream, whose status is 200.
type streamError string

func (e streamError) Error() string { return string(e) }

// Close implements io.Closer.
func (f *frames) Close() error { return f.body.Close() }
