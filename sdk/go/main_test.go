package pyexec_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// TestMain fails when goroutines of the client or of a connection outlive the tests: somebody forgot to close a body. The
// module has no dependencies, so core/executor/leaktest is not at hand.
func TestMain(m *testing.M) {
	status := m.Run()
	const looks = 60_000 // ten minutes at least, as in core/executor/leaktest
	for look := 1; status == 0; look++ {
		left := leaked()
		if left == "" {
			break
		}
		time.Sleep(10 * time.Millisecond)
		if look == looks {
			fmt.Fprintln(os.Stderr, "goroutines are left:\n"+left)
			status = 1
		}
	}
	os.Exit(status)
}

func leaked() string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var left []string
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "sdk/go.TestMain(") {
			continue
		}
		if strings.Contains(stack, "net/http.") || strings.Contains(stack, "sdk/go.") {
			left = append(left, stack)
		}
	}
	return strings.Join(left, "\n\n")
}

// fast is a RetryPolicy for tests.
var fast = pyexec.RetryPolicy{Attempts: 4, FollowAttempts: 6, MinDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond}

// serve returns a client of a server that answers with handler.
func serve(t *testing.T, handler http.HandlerFunc, opts ...pyexec.Option) *pyexec.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	return clientOf(t, server, opts...)
}

func clientOf(t *testing.T, server *httptest.Server, opts ...pyexec.Option) *pyexec.Client {
	t.Helper()
	c, err := pyexec.NewClient(server.URL, append([]pyexec.Option{pyexec.WithRetry(fast)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.CloseIdleConnections()
		server.Close()
	})
	return c
}

func answer(t *testing.T, w http.ResponseWriter, status int, contentType, body string) {
	t.Helper()
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	if _, err := w.Write([]byte(body)); err != nil {
		t.Logf("answer: %v", err)
	}
}

func answerJSON(t *testing.T, w http.ResponseWriter, body string) {
	t.Helper()
	answer(t, w, http.StatusOK, "application/json", body)
}

func problem(t *testing.T, w http.ResponseWriter, status int, code string) {
	t.Helper()
	answer(t, w, status, "application/problem+json", fmt.Sprintf(`{"status":%d,"code":%q,"detail":"the test says %s"}`, status, code, code))
}
