package nomadbackend

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

func TestTheDefaultsAreValid(t *testing.T) {
	for _, section := range []string{"", "{}", string(Filled(nil)), `{"mode":"job"}`} {
		if err := Check("nomad", json.RawMessage(section)); err != nil {
			t.Errorf("%s: %v", section, err)
		}
	}
}

func TestEveryWrongSettingIsNamed(t *testing.T) {
	for section, want := range map[string]string{
		`{"mode":"batch"}`:                                       `backends.n.mode: must be job or workers (got "batch")`,
		`{"addr":"x"}`:                                           "backends.n.addr: unknown key",
		`{"address":"127.0.0.1:4646"}`:                           "backends.n.address: must be http://HOST:PORT",
		`{"address":"http://user:word@host:1"}`:                  "backends.n.address: must be http://HOST:PORT",
		`{"address":"unix://relative"}`:                          "backends.n.address: must be http://HOST:PORT",
		`{"token":"a","token_file":"/b"}`:                        "backends.n.token_file: must be empty",
		`{"token_file":"b"}`:                                     "backends.n.token_file: must be an absolute path",
		`{"tls":{"ca_cert":"ca.pem"}}`:                           "backends.n.tls.ca_cert: must be an absolute path",
		`{"tls":{"cert":"/cert.pem"}}`:                           "backends.n.tls.key: must be given with tls.cert",
		`{"tls":{"key":"/key.pem"}}`:                             "backends.n.tls.key: must be given with tls.cert",
		`{"job":{"datacenters":[]}}`:                             "backends.n.job.datacenters: must be a list",
		`{"job":{"constraints":["a = b","linux"]}}`:              "backends.n.job.constraints[1]: must be ATTRIBUTE OPERATOR VALUE",
		`{"job":{"priority":101}}`:                               "backends.n.job.priority: must be from 1 to 100 (got 101)",
		`{"job":{"default_image":""}}`:                           "backends.n.job.default_image: must be",
		`{"job":{"purge_after_seconds":-1}}`:                     "backends.n.job.purge_after_seconds: must be from 0",
		`{"job":{"queue_timeout_seconds":0}}`:                    "backends.n.job.queue_timeout_seconds: must be from 1",
		`{"job":{"transfer":{"listen":"8080"}}}`:                 "backends.n.job.transfer.listen: must be HOST:PORT",
		`{"job":{"transfer":{"url":"host:8080"}}}`:               "backends.n.job.transfer.url: must be an http",
		`{"job":{"prepare":{"index_url":"x"}}}`:                  "backends.n.job.prepare.index_url: must be an http",
		`{"job":{"prepare":{"timeout_seconds":0}}}`:              "backends.n.job.prepare.timeout_seconds: must be > 0",
		`{"workers":{"service":""}}`:                             "backends.n.workers.service: must be",
		`{"workers":{"provider":"dns"}}`:                         "backends.n.workers.provider: must be nomad or consul",
		`{"workers":{"consul":{"address":"host:8500"}}}`:         "backends.n.workers.consul.address: must be http://HOST:PORT",
		`{"workers":{"consul":{"token":"a","token_file":"/b"}}}`: "backends.n.workers.consul.token_file: must be empty",
		`{"workers":{"consul":{"tls":{"key":"/key.pem"}}}}`:      "backends.n.workers.consul.tls.key: must be given with tls.cert",
		`{"workers":{"consul":{"dc":"x"}}}`:                      "backends.n.workers.consul.dc: unknown key",
		`{"workers":{"tls":{"cert":"x"}}}`:                       "backends.n.workers.tls.cert: must be an absolute path",
		`{"mode":"workers"}`:                                     "backends.n.workers.tls.ca_cert: must be an absolute path",
		`{"mode":"workers","workers":{"tls":{"x":1}}}`:           "backends.n.workers.tls.x: unknown key",
	} {
		err := Check("n", json.RawMessage(section))
		if executor.CodeOf(err) != executor.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", section, err, want)
		}
	}
}

func TestTheClientTakesTheSectionThenTheVariables(t *testing.T) {
	t.Setenv("NOMAD_ADDR", "http://variable:1")
	t.Setenv("NOMAD_TOKEN", "of the variable")
	t.Setenv("NOMAD_NAMESPACE", "team")
	t.Setenv("NOMAD_REGION", "north")
	if c, err := newClient("n", Default()); err != nil || c.Address() != "http://variable:1" {
		t.Errorf("%v, %v", c, err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("of the file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("X-Nomad-Token") + ", " + r.URL.Query().Get("namespace") + ", " + r.URL.Query().Get("region")
		_, _ = w.Write([]byte("[]"))
	}))
	defer agent.Close()
	for want, set := range map[string]func(*Config){
		"of the variable, team, north": func(*Config) {},
		"of the section, n, south":     func(c *Config) { c.Token, c.Namespace, c.Region = "of the section", "n", "south" },
		"of the file, team, north":     func(c *Config) { c.TokenFile = file },
	} {
		c := Default()
		c.Address = agent.URL
		set(&c)
		client, err := newClient("n", c)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := client.Jobs().List(nil); err != nil {
			t.Error(err)
		}
		if it := <-got; it != want {
			t.Errorf("got %q, want %q", it, want)
		}
		client.Close()
	}
}

func TestAClientThatCannotBeIsRefused(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, set := range map[string]func(*Config){
		"backends.n.token_file: must be a file that can be read": func(c *Config) { c.TokenFile = empty + "x" },
		"backends.n.token_file: must hold a token":               func(c *Config) { c.TokenFile = empty },
		"backends.n.address: must begin with https://":           func(c *Config) { c.TLS.ServerName = "x" },
		"backends.n.address: no client of Nomad":                 func(c *Config) { c.Address, c.TLS.CACert = "https://localhost:1", empty },
	} {
		c := Default()
		c.Address = "http://localhost:1"
		set(&c)
		raw, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Factory(t.Context(), plugin.Configure{Name: "n", Options: raw})
		if executor.CodeOf(err) != executor.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestTheDoctorNamesAnAgentThatDoesNotAnswer(t *testing.T) {
	list := Doctor(t.Context(), json.RawMessage(`{"address":"http://127.0.0.1:1"}`))
	if len(list) != 1 || list[0].Level != backend.LevelError || !strings.Contains(list[0].Remedy, "NOMAD_ADDR") {
		t.Errorf("%+v", list)
	}
	if list := Doctor(t.Context(), json.RawMessage(`{"mode":"x"}`)); len(list) != 1 || !strings.Contains(list[0].Message, "backends.nomad.mode") {
		t.Errorf("%+v", list)
	}
}

func TestTheDoctorSaysWhatATokenIsWorth(t *testing.T) {
	accessor := ""
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/status/leader":
			_, _ = w.Write([]byte(`"10.0.0.1:4647"`))
		case r.URL.Path == "/v1/acl/token/self" && accessor != "":
			_, _ = w.Write([]byte(`{"AccessorID": "` + accessor + `"}`))
		default:
			http.Error(w, "Permission denied", http.StatusForbidden)
		}
	}))
	defer agent.Close()
	c := Default()
	c.Address = agent.URL
	client, err := newClient("n", c)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, c := range []struct {
		accessor string
		level    backend.Level
		ok       bool
	}{{"a1", backend.LevelOK, true}, {"acls-disabled", backend.LevelWarn, true}, {"anonymous", backend.LevelError, false}, {"", backend.LevelError, false}} {
		accessor = c.accessor
		list, ok := agentFindings(t.Context(), client)
		if ok != c.ok || len(list) == 0 || list[0].Topic != "token" || list[0].Level != c.level {
			t.Errorf("the token of %q: %v, %+v", c.accessor, ok, list)
		}
		if last := list[len(list)-1]; ok && (last.Topic != "nomad" || last.Level != backend.LevelOK || !strings.Contains(last.Message, "10.0.0.1:4647")) {
			t.Errorf("the agent: %+v", last)
		}
	}
	for address, want := range map[string]int{"http://10.0.0.1:4646": 1, "https://10.0.0.1:4646": 0, agent.URL: 0} {
		if list := plainFinding(address); len(list) != want {
			t.Errorf("%s: %+v", address, list)
		}
	}
}

func TestWorkersInConsulNeedNoNomad(t *testing.T) {
	section := json.RawMessage(`{"mode":"workers","token_file":"/none","workers":{"provider":"consul","consul":{"address":"http://127.0.0.1:1"},
		"tls":{"ca_cert":"/none","cert":"/none","key":"/none"}}}`)
	if list := Doctor(t.Context(), section); len(list) != 1 || list[0].Topic != "consul" || list[0].Level != backend.LevelError {
		t.Errorf("%+v", list)
	}
	jobs := json.RawMessage(`{"mode":"job","address":"http://127.0.0.1:1","workers":{"provider":"consul"}}`)
	if list := Doctor(t.Context(), jobs); len(list) != 1 || list[0].Topic != "nomad" {
		t.Errorf("jobs need Nomad: %+v", list)
	}
	if _, err := Factory(t.Context(), plugin.Configure{Name: "n", Options: section}); err == nil || !strings.Contains(err.Error(), "backends.n.workers.tls") {
		t.Errorf("got %v", err)
	}
}
