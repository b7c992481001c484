package pyexec_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// script answers the n-th request for events with the n-th text (the last one again and again), and others with execution.
func script(t *testing.T, execution string, opts []pyexec.Option, texts ...string) (*pyexec.Client, *[]string) {
	t.Helper()
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/events") {
			answerJSON(t, w, execution)
			return
		}
		if r.Header.Get("Accept") != "text/event-stream" || r.Header.Get("Cache-Control") != "no-cache" {
			t.Errorf("the headers are %v", r.Header)
		}
		text := texts[min(len(asked), len(texts)-1)]
		asked = append(asked, r.Header.Get("Last-Event-ID"))
		if status, isStatus := strings.CutPrefix(text, "status "); isStatus {
			var code int
			if _, err := fmt.Sscan(status, &code); err != nil {
				t.Error(err)
			}
			w.WriteHeader(code)
			return
		}
		answer(t, w, http.StatusOK, "text/event-stream", text)
	}, opts...)
	return c, &asked
}

func collect(ctx context.Context, c *pyexec.Client, after uint64) (log string, err error) {
	var parts []string
	for e, err := range c.Events(ctx, "exe_1", after) {
		if err != nil {
			return strings.Join(parts, " "), err
		}
		text := fmt.Sprintf("%d:%s", e.Seq, e.Body.Kind())
		if o, ok := e.Body.(pyexec.Output); ok {
			text += "=" + string(o.Data)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " "), nil
}

func out(seq int, data string) string {
	return fmt.Sprintf("id: %d\nevent: output\ndata: {\"stream\":\"stdout\",\"offset\":0,\"data\":%q}\n\n", seq, data)
}

const (
	running  = `{"execution_id":"exe_1","status":"running"}`
	queuedAt = "id: 1\nevent: queued\ndata: {\"position\":0}\n\n"
	endAt3   = "id: 3\nevent: finished\ndata: {\"execution_id\":\"exe_1\",\"status\":\"succeeded\"}\n\n"
	endAt4   = "id: 4\nevent: finished\ndata: {\"execution_id\":\"exe_1\",\"status\":\"succeeded\"}\n\n"
)

func TestEventsResumeWhereTheyBroke(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		after uint64
		texts []string
		want  string
		asked []string
	}{
		{"one connection", 0, []string{queuedAt + out(2, "a") + endAt3}, "1:queued 2:output=a 3:finished", []string{""}},
		{"from the middle", 1, []string{out(2, "a") + endAt3}, "2:output=a 3:finished", []string{"1"}},
		{"a connection that ends", 0, []string{queuedAt, out(2, "a") + endAt3}, "1:queued 2:output=a 3:finished", []string{"", "1"}},
		{"a message that is cut", 0, []string{queuedAt + "id: 2\nevent: out", out(2, "a") + endAt3}, "1:queued 2:output=a 3:finished", []string{"", "1"}},
		{"a message cut before its empty line", 0, []string{queuedAt + strings.TrimSuffix(out(2, "a"), "\n"), out(2, "a") + endAt3}, "1:queued 2:output=a 3:finished", []string{"", "1"}},
		{"a server that is away for a moment", 0, []string{"status 503", queuedAt, "status 502", "status 429", out(2, "a") + endAt3}, "1:queued 2:output=a 3:finished", []string{"", "", "1", "1", "1"}},
		{"a server that repeats", 0, []string{queuedAt, queuedAt + out(2, "a") + endAt3}, "1:queued 2:output=a 3:finished", []string{"", "1"}},
		{"a server that jumps", 0, []string{queuedAt + endAt3, out(2, "a") + endAt3}, "1:queued 2:output=a 3:finished", []string{"", "1"}},
		{"heartbeats, other line ends, fields and order", 0, []string{": waiting\n\n\r\nretry: 5\r\nevent:queued\r\ndata:{\"position\":0}\r\nid:1\r\n\r\n: waiting\n\n" + out(2, "a") + endAt3 + "id: 9\n\n"},
			"1:queued 2:output=a 3:finished", []string{""}},
		{"data in several lines", 0, []string{"id: 1\nevent: queued\ndata: {\"position\":\ndata: 0}\n\n" + out(2, "a") + endAt3}, "1:queued 2:output=a 3:finished", []string{""}},
		{"kinds of the future", 0, []string{queuedAt + "id: 2\nevent: telemetry\ndata: [1]\n\nevent: notice\ndata: x\n\n" + endAt3}, "1:queued 2:telemetry 3:finished", []string{""}},
		{"a message without a name", 0, []string{queuedAt + "id: 2\ndata: {}\n\n" + out(2, "a") + endAt3}, "1:queued 2:output=a 3:finished", []string{""}},
		{"many breaks, each with progress", 0, []string{queuedAt, out(2, "a"), out(3, "b"), endAt4}, "1:queued 2:output=a 3:output=b 4:finished", []string{"", "1", "2", "3"}},
		{"more failures than attempts, with progress between", 0, []string{queuedAt, "status 503", "status 503", "status 503", out(2, "a"), "status 503", "status 503", "status 503", endAt3},
			"1:queued 2:output=a 3:finished", []string{"", "1", "1", "1", "1", "2", "2", "2", "2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client, asked := script(t, running, nil, c.texts...)
			got, err := collect(t.Context(), client, c.after)
			if err != nil || got != c.want {
				t.Errorf("%s, error %v\nwant %s", got, err, c.want)
			}
			if fmt.Sprintf("%q", *asked) != fmt.Sprintf("%q", c.asked) {
				t.Errorf("asked after %q, want %q", *asked, c.asked)
			}
		})
	}
}

func TestEventsAfterTheEndAreNone(t *testing.T) {
	t.Parallel()
	c, asked := script(t, done, nil, "")
	got, err := collect(t.Context(), c, 3)
	if err != nil || got != "" || len(*asked) != 2 {
		t.Errorf("%q, error %v, asked %d times", got, err, len(*asked))
	}
	// It may have ended between the two questions: then the rest comes.
	c, _ = script(t, done, nil, "", out(2, "a")+endAt3)
	if got, err := collect(t.Context(), c, 1); err != nil || got != "2:output=a 3:finished" {
		t.Errorf("%q, error %v", got, err)
	}
	// Breaks with progress are not the end, even if the execution has ended.
	for _, texts := range [][]string{{queuedAt, out(2, "a"), endAt3}, {"", queuedAt, "", out(2, "a"), endAt3}} {
		c, _ = script(t, done, nil, texts...)
		if got, err := collect(t.Context(), c, 0); err != nil || got != "1:queued 2:output=a 3:finished" {
			t.Errorf("%q, error %v", got, err)
		}
	}
}

func TestEventsGiveUpWhereNothingHelps(t *testing.T) {
	t.Parallel()
	once := []pyexec.Option{pyexec.WithRetry(pyexec.RetryPolicy{Attempts: 1})}
	for _, c := range []struct {
		name  string
		after uint64
		opts  []pyexec.Option
		texts []string
		want  string
		code  string
		asked int
	}{
		{"gone", 0, nil, []string{"status 404"}, "", pyexec.CodeNotFound, 1},
		{"purged on the way", 0, nil, []string{queuedAt, "status 410"}, "1:queued", pyexec.CodePurged, 2},
		{"away for too long", 0, nil, []string{"status 503"}, "", pyexec.CodeUnavailable, 4},
		{"away for too long, asked from the middle", 7, nil, []string{"status 503"}, "", pyexec.CodeUnavailable, 4},
		{"nothing new, again and again", 0, nil, []string{queuedAt}, "1:queued", pyexec.CodeUnavailable, 6},
		{"a break without retries", 0, once, []string{queuedAt}, "1:queued", pyexec.CodeUnavailable, 1},
		{"always a jump", 0, nil, []string{queuedAt + endAt3}, "1:queued", pyexec.CodeUnavailable, 6},
		{"data that is no JSON", 0, nil, []string{"id: 1\nevent: queued\ndata: {\n\n"}, "", pyexec.CodeInternal, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client, asked := script(t, running, c.opts, c.texts...)
			got, err := collect(t.Context(), client, c.after)
			if pyexec.CodeOf(err) != c.code || got != c.want || len(*asked) != c.asked {
				t.Errorf("%q, error %v, asked %d times", got, err, len(*asked))
			}
		})
	}
	page := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(t, w, http.StatusOK, "text/html", "<h1>log in</h1>")
	})
	if _, err := collect(t.Context(), page, 0); pyexec.CodeOf(err) != pyexec.CodeInternal {
		t.Errorf("a page instead of a stream gives %v", err)
	}
}

// open answers with text and keeps the connection until the client lets go, which it tells on gone.
func open(t *testing.T, text string, gone chan<- struct{}, opts ...pyexec.Option) *pyexec.Client {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		answer(t, w, http.StatusOK, "text/event-stream", text)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
		gone <- struct{}{}
	}, opts...)
}

func TestStoppingClosesTheConnection(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	c := open(t, queuedAt, gone)
	for range c.Events(t.Context(), "exe_1", 0) {
		break
	}
	<-gone
}

func TestTheEndOfACtxEndsEvents(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	c := open(t, queuedAt, gone)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var last error
	for _, err := range c.Events(ctx, "exe_1", 0) {
		if last = err; err == nil {
			cancel(errors.New("enough"))
		}
	}
	if !errors.Is(last, context.Canceled) || pyexec.CodeOf(last) != pyexec.CodeUnavailable {
		t.Errorf("the last error is %v", last)
	}
	<-gone
}

func TestRunStreamSubmitsFollowsAndGets(t *testing.T) {
	t.Parallel()
	var calls []string
	hold := false
	handler := func(w http.ResponseWriter, r *http.Request) {
		calls = append(calls, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/api/v1/"))
		switch {
		case r.Method == http.MethodPost:
			answer(t, w, http.StatusAccepted, "application/json", `{"execution_id":"exe_1"}`)
		case strings.HasSuffix(r.URL.Path, "/events"):
			if !hold {
				answer(t, w, http.StatusOK, "text/event-stream", queuedAt+out(2, "a")+endAt3)
				return
			}
			answer(t, w, http.StatusOK, "text/event-stream", queuedAt)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			<-r.Context().Done()
		case r.Method == http.MethodDelete:
			answerJSON(t, w, `{"status":"killed"}`)
		default:
			answerJSON(t, w, done)
		}
	}
	c := serve(t, handler)
	var kinds []string
	e, err := c.RunStream(t.Context(), pyexec.Spec{Code: "1"}, pyexec.Input{}, func(e pyexec.Event) error {
		kinds = append(kinds, e.Body.Kind())
		return nil
	})
	if err != nil || e.Stdout != "42\n" || strings.Join(kinds, " ") != "queued output finished" {
		t.Errorf("%+v, %v, events %v", e, err, kinds)
	}
	if got := strings.Join(calls, ", "); got != "POST exec/async, GET executions/exe_1/events, GET executions/exe_1" {
		t.Errorf("calls %s", got)
	}
	calls = nil
	enough := errors.New("enough")
	if _, err := c.RunStream(t.Context(), pyexec.Spec{Code: "1"}, pyexec.Input{}, func(pyexec.Event) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("the error is %v", err)
	}
	if got := strings.Join(calls, ", "); got != "POST exec/async, GET executions/exe_1/events, DELETE executions/exe_1" {
		t.Errorf("calls %s", got)
	}
	// The end of ctx kills the Execution, too.
	calls, hold = nil, true
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	_, err = c.RunStream(ctx, pyexec.Spec{Code: "1"}, pyexec.Input{}, func(pyexec.Event) error {
		cancel(nil)
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	if got := strings.Join(calls, ", "); got != "POST exec/async, GET executions/exe_1/events, DELETE executions/exe_1" {
		t.Errorf("calls after the end of ctx: %s", got)
	}
}
