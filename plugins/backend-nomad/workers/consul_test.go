package workers

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/worker"
	"github.com/python-executor/python-executor/core/worker/workertest"
)

// fakeConsul answers the questions for the instances of a service, one after the other, as the test says.
type fakeConsul struct {
	*httptest.Server
	mu sync.Mutex
	// asked are the queries, with the token, as "QUERY TOKEN".
	asked []string
	// status, index, filtered and body are the next answer.
	status, index int
	filtered      bool
	body          string
}

// serving returns a fake with no instances. start is a function of httptest.Server: Start or StartTLS.
func serving(t *testing.T, start func(*httptest.Server)) *fakeConsul {
	t.Helper()
	f := &fakeConsul{status: http.StatusOK, index: 7, body: "[]"}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asked = append(f.asked, r.URL.Path+"?"+r.URL.Query().Encode()+" "+r.Header.Get("X-Consul-Token"))
		w.Header().Set("X-Consul-Index", fmt.Sprint(f.index))
		w.Header().Set("X-Consul-LastContact", "0")
		w.Header().Set("X-Consul-Results-Filtered-By-ACLs", fmt.Sprint(f.filtered))
		w.WriteHeader(f.status)
		_, _ = w.Write([]byte(f.body))
	}))
	start(f.Server)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeConsul) last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[len(f.asked)-1]
}

// in returns the registry of f; change changes the settings.
func (f *fakeConsul) in(t *testing.T, change ...func(*Consul)) *consulServices {
	t.Helper()
	c := Consul{Address: f.URL}
	for _, set := range change {
		set(&c)
	}
	s, err := newConsulServices("n", "w", c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConsulIsAskedForInstancesThatPass(t *testing.T) {
	t.Parallel()
	f := serving(t, (*httptest.Server).Start)
	f.body = `[
		{"Node": {"Node": "n1", "Address": "10.0.0.1"}, "Service": {"ID": "a", "Address": "10.0.0.9", "Port": 4000, "Meta": {"allocation": "5b1e0a4c-0000"}}},
		{"Node": {"Node": "n2", "Address": "fd00::2"}, "Service": {"ID": "a", "Port": 4001}}
	]`
	s := f.in(t, func(c *Consul) { c.Datacenter, c.Namespace, c.Partition = "dc7", "space", "part" })
	all, next, err := s.list(t.Context(), 5)
	if err != nil || next != 7 || len(all) != 2 {
		t.Fatalf("%+v, %d, %v", all, next, err)
	}
	if want := (registration{ID: "n1/a", Address: "10.0.0.9:4000", Allocation: "5b1e0a4c-0000", Node: "n1"}); all[0] != want || all[0].name() != "5b1e0a4c at 10.0.0.9:4000" {
		t.Errorf("%+v, %s", all[0], all[0].name())
	}
	if want := (registration{ID: "n2/a", Address: "[fd00::2]:4001", Node: "n2"}); all[1] != want || all[1].name() != "n2/a at [fd00::2]:4001" {
		t.Errorf("%+v, %s", all[1], all[1].name())
	}
	if want := "/v1/health/service/w?dc=dc7&index=5&ns=space&partition=part&passing=1&wait=60000ms "; f.last() != want {
		t.Errorf("asked %q, want %q", f.last(), want)
	}
}

func TestTheIndexOfConsulIsFollowedByItsRules(t *testing.T) {
	t.Parallel()
	f := serving(t, (*httptest.Server).Start)
	s := f.in(t)
	for _, c := range []struct {
		what       string
		sent, came int
		want       uint64
	}{
		{"it grows", 5, 7, 7},
		{"nothing has changed", 7, 7, 7},
		{"it went backwards, so the next query is not held back", 7, 6, 0},
		{"it is none, and the next query must be held back", 0, 0, 1},
	} {
		f.index = c.came
		if _, next, err := s.list(t.Context(), uint64(c.sent)); err != nil || next != c.want {
			t.Errorf("%s: %d, %v", c.what, next, err)
		}
	}
}

func TestAnAnswerOfConsulThatSaysNothingIsAnError(t *testing.T) {
	t.Parallel()
	for want, set := range map[string]func(*fakeConsul){
		"No cluster leader":                   func(f *fakeConsul) { f.status, f.body = http.StatusInternalServerError, "No cluster leader" },
		"ACL not found":                       func(f *fakeConsul) { f.status, f.body = http.StatusForbidden, "ACL not found" },
		"needs service:read of it, and node:": func(f *fakeConsul) { f.filtered = true },
		"does not answer as Consul does":      func(f *fakeConsul) { f.body = `[{}]` },
		"invalid character":                   func(f *fakeConsul) { f.body = `<html>` },
	} {
		f := serving(t, (*httptest.Server).Start)
		set(f)
		if all, _, err := f.in(t).list(t.Context(), 5); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v, want %s", all, err, want)
		}
	}
	f := serving(t, (*httptest.Server).Start)
	f.filtered, f.body = true, `[{"Node": {"Node": "n1"}, "Service": {"ID": "a"}}]`
	if all, _, err := f.in(t).list(t.Context(), 5); err != nil || len(all) != 1 {
		t.Errorf("a token that sees some: %+v, %v", all, err)
	}
}

func TestTheSettingsOfConsulComeFirstThenItsVariables(t *testing.T) {
	f := serving(t, (*httptest.Server).Start)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("of the file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CONSUL_HTTP_ADDR", f.URL)
	t.Setenv("CONSUL_HTTP_TOKEN", "of the variable")
	t.Setenv("CONSUL_NAMESPACE", "space")
	for want, set := range map[string]func(*Consul){
		"ns=space&passing=1&wait=60000ms of the variable": func(c *Consul) { c.Address = "" },
		"ns=other&passing=1&wait=60000ms of the section":  func(c *Consul) { c.Token, c.Namespace = "of the section", "other" },
		"ns=space&passing=1&wait=60000ms of the file":     func(c *Consul) { c.TokenFile = file },
	} {
		if _, _, err := f.in(t, set).list(t.Context(), 0); err != nil || !strings.HasSuffix(f.last(), want) {
			t.Errorf("asked %q, want %q, %v", f.last(), want, err)
		}
	}
	t.Setenv("CONSUL_HTTP_TOKEN_FILE", file)
	if _, _, err := f.in(t, func(c *Consul) { c.Token = "of the section" }).list(t.Context(), 0); err != nil || !strings.HasSuffix(f.last(), " of the section") {
		t.Errorf("asked %q, %v", f.last(), err)
	}
	t.Setenv("CONSUL_HTTP_SSL", "true")
	if s := f.in(t); s.address != f.URL {
		t.Errorf("the variable makes %s of %s", s.address, f.URL)
	}
	t.Setenv("CONSUL_HTTP_ADDR", "consul.example.org:8501")
	if s := f.in(t, func(c *Consul) { c.Address = "" }); s.address != "https://consul.example.org:8501" {
		t.Errorf("the variables make %s", s.address)
	}
}

func TestTheConnectionToConsulIsSecuredByItsCertificates(t *testing.T) {
	t.Parallel()
	f := serving(t, (*httptest.Server).StartTLS)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	raw := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
	if err := os.WriteFile(ca, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.in(t).list(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an unknown authority: %v", err)
	}
	good := func(c *Consul) { c.TLS.CACert, c.TLS.ServerName = ca, "example.com" }
	if _, _, err := f.in(t, good).list(t.Context(), 0); err != nil {
		t.Error(err)
	}
	wrong := func(c *Consul) { c.TLS.CACert, c.TLS.ServerName = ca, "consul.example.org" }
	if _, _, err := f.in(t, wrong).list(t.Context(), 0); err == nil {
		t.Error("a certificate of another name was taken")
	}
}

func TestAConsulThatCannotBeAskedIsRefused(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, set := range map[string]func(*Consul){
		"backends.n.workers.consul.token_file: must be a file that can be read": func(c *Consul) { c.TokenFile = empty + "x" },
		"backends.n.workers.consul.token_file: must hold a token":               func(c *Consul) { c.TokenFile = empty },
		"backends.n.workers.consul.address: must begin with https://":           func(c *Consul) { c.TLS.ServerName = "x" },
		"backends.n.workers.consul.address: no client of Consul":                func(c *Consul) { c.Address, c.TLS.CACert = "https://localhost:1", empty+"x" },
	} {
		c := Default()
		c.Provider, c.Consul.Address = ProviderConsul, "http://localhost:1"
		set(&c.Consul)
		configure := pluginConfigure()
		configure.Name = "n"
		_, err := New(t.Context(), Options{Config: c, Configure: configure})
		if executor.CodeOf(err) != executor.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestTheDoctorSaysWhatConsulLacks(t *testing.T) {
	t.Parallel()
	levels := func(f *fakeConsul) map[string]backend.Finding {
		c := Default()
		c.TLS = workertest.NewAuthority(t).Issue(worker.ServerName)
		c.TLS.PeerName = worker.WorkerName
		c.Provider, c.Consul.Address = ProviderConsul, f.URL
		found := map[string]backend.Finding{}
		for _, finding := range Doctor(t.Context(), nil, c) {
			found[finding.Topic] = finding
		}
		return found
	}
	gone := serving(t, (*httptest.Server).Start)
	gone.Close()
	if found := levels(gone); len(found) != 1 || found["consul"].Level != backend.LevelError || !strings.Contains(found["consul"].Remedy, "CONSUL_HTTP_ADDR") {
		t.Errorf("no agent: %+v", found)
	}
	refusing := serving(t, (*httptest.Server).Start)
	refusing.status, refusing.body = http.StatusForbidden, "ACL not found"
	if found := levels(refusing); found["consul"].Level != backend.LevelError {
		t.Errorf("an agent that refuses: %+v", found)
	}
}

// silent is a registry that never answers, as one behind a connection that was cut without a word.
type silent struct{ asked chan struct{} }

func (s silent) list(ctx context.Context, index uint64) ([]registration, uint64, error) {
	if index == 0 {
		return nil, 1, nil
	}
	s.asked <- struct{}{}
	<-ctx.Done()
	return nil, 0, context.Cause(ctx)
}

func TestARegistryThatFallsSilentIsAskedAgain(t *testing.T) {
	t.Parallel()
	ca := workertest.NewAuthority(t)
	synctest.Test(t, func(t *testing.T) {
		c := Default()
		c.TLS = ca.Issue(worker.ServerName)
		c.TLS.PeerName = worker.WorkerName
		s := silent{make(chan struct{}, 10)}
		p, err := newPool(t.Context(), c, pluginConfigure(), s, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			<-s.asked // hangs for ever, in the eyes of synctest, unless the wait is bounded
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}
