package app

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func TestProfilesHaveAListenerOfTheirOwn(t *testing.T) {
	rate := runtime.MemProfileRate
	defer func() { runtime.MemProfileRate = rate }()
	runtime.MemProfileRate = 0 // as main sets it
	s := startLive(t, quiet+"backends: {fake: {}}\nhttp: {pprof_bind: \"127.0.0.1:0\"}\n")
	address, _ := strings.CutPrefix(awaittest.Recv(t, "the message with the address", s.log.said), "profiles are served address=")
	if runtime.MemProfileRate != allocationRate {
		t.Errorf("MemProfileRate is %d, so that profiles have no allocations", runtime.MemProfileRate)
	}
	for _, test := range []struct {
		address, path, host string
		status              int
		text                string
	}{
		{address, "/debug/pprof/", "", 200, "goroutine"},
		{address, "/debug/pprof/goroutine?debug=1", "localhost:80", 200, "goroutine profile: total"},
		{address, "/debug/pprof/profile?seconds=1", "", 200, "\x1f\x8b"}, // gzip
		{address, "/debug/pprof/", "evil.example", 403, "must be a loopback name"},
		{address, "/api/v1/executions", "", 404, ""},
		{strings.TrimPrefix(s.url, "http://"), "/debug/pprof/", "", 404, ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+test.address+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = test.host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != test.status || !strings.Contains(string(body), test.text) {
			t.Errorf("%s%s as %q: %d %v %.300s", test.address, test.path, test.host, resp.StatusCode, err, body)
		}
	}
}

// A profile that is being taken when the server stops must not hold the server up.
func TestAStoppingServerEndsItsProfiles(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { <-ended }) // after the server has stopped
	s := startLive(t, quiet+"backends: {fake: {}}\nhttp: {pprof_bind: \"127.0.0.1:0\"}\n")
	address, _ := strings.CutPrefix(<-s.log.said, "profiles are served address=")
	go func() {
		defer close(ended)
		resp, err := http.Get("http://" + address + "/debug/pprof/trace?seconds=3600")
		close(begun)
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}()
	<-begun
}

func TestAnAddressOfProfilesThatIsInUseIsNamed(t *testing.T) {
	taken := startLive(t, quiet+"backends: {fake: {}}\n")
	if _, err := listenPprof(t.Context(), strings.TrimPrefix(taken.url, "http://")); err == nil || !strings.HasPrefix(err.Error(), "http.pprof_bind: ") {
		t.Errorf("the error is %v", err)
	}
}
