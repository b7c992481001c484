package nomadbackend

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/worker"
	"github.com/python-executor/python-executor/core/worker/workertest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
	"github.com/python-executor/python-executor/plugins/backend-nomad/agent"
	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
)

// securedCluster starts a cluster with ACLs, whose API only answers clients with a certificate.
func securedCluster(t *testing.T) (*nomadtest.Cluster, api.TLSConfig) {
	t.Helper()
	const name = "server.global.nomad"
	files := workertest.NewAuthority(t).Issue(name)
	secure := api.TLSConfig{CACert: files.CACert, ClientCert: files.Cert, ClientKey: files.Key, TLSServerName: name}
	return nomadtest.Start(t, nomadtest.Options{ACL: true, RawExec: true, Settings: vaultSettings, TLS: secure}), secure
}

// tlsSection returns the setting tls of a backend, which is also YAML.
func tlsSection(secure api.TLSConfig) json.RawMessage {
	raw, err := json.Marshal(agent.TLS{CACert: secure.CACert, Cert: secure.ClientCert, Key: secure.ClientKey, ServerName: secure.TLSServerName})
	if err != nil {
		panic(err) // texts always have a form in JSON
	}
	return raw
}

// printsFortyTwo runs a program with python-executor, whose backend has the rights of a policy and this section for its mode.
func printsFortyTwo(t *testing.T, c *nomadtest.Cluster, secure api.TLSConfig, mode, policy, section string) {
	t.Helper()
	_, token := withPolicy(t, c, secure, policy)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := write("config.yaml", fmt.Sprintf("data_dir: %s\nbackend: nomad\nbackends:\n  nomad: {mode: %s, address: %q, namespace: %s, token_file: %s, tls: %s, %s: %s}\n",
		filepath.Join(dir, "data"), mode, c.Address(), namespace, write("token", token+"\n"), tlsSection(secure), mode, section))
	cmd := exec.CommandContext(t.Context(), nomadtest.Executor(t), "run", "--config", config)
	cmd.Stdin = strings.NewReader("print(6 * 7)")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "NOMAD_") || strings.HasPrefix(pair, "PYEXEC_") })
	var said strings.Builder
	cmd.Stderr = &said
	if out, err := cmd.Output(); err != nil || string(out) != "42\n" {
		t.Errorf("%v, %q\n%s", err, out, said.String())
	}
}

func runsAsJob(t *testing.T, c *nomadtest.Cluster, secure api.TLSConfig) {
	printsFortyTwo(t, c, secure, ModeJob, "job-mode", fmt.Sprintf("{default_image: %q}", dockertest.Python(t)))
}

// runsOnWorker runs a program on a worker that deploy/nomad/workers.nomad.hcl starts.
func runsOnWorker(t *testing.T, c *nomadtest.Cluster, secure api.TLSConfig) {
	binary := nomadtest.Executor(t)
	raw, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	files := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(binary))))
	t.Cleanup(files.Close)
	ca := workertest.NewAuthority(t)
	dir, own := t.TempDir(), ca.Issue(worker.WorkerName)
	for name, from := range map[string]string{"ca.pem": own.CACert, "worker.pem": own.Cert, "worker-key.pem": own.Key} {
		if err := os.Link(from, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	const job = "python-executor-workers"
	defer func() {
		c.Nomad(t, "job", "stop", "-namespace", namespace, job)
		workersEnd(t, c, job)
	}()
	c.Nomad(t, "job", "run", "-namespace", namespace, "-var", "count=1", "-var", "image="+dockertest.Python(t), "-var", "docker="+c.Docker(), "-var", "certificates="+dir,
		"-var", "binary="+files.URL+"/"+filepath.Base(binary), "-var", fmt.Sprintf("checksum=sha256:%x", sha256.Sum256(raw)), filepath.Join(deployFolder, "workers.nomad.hcl"))
	id := ca.Issue(worker.ServerName)
	printsFortyTwo(t, c, secure, ModeWorkers, "workers-mode", fmt.Sprintf("{tls: {ca_cert: %q, cert: %q, key: %q}}", id.CACert, id.Cert, id.Key))
}

// workersEnd waits until no allocation of a job runs.
func workersEnd(t *testing.T, c *nomadtest.Cluster, job string) {
	t.Helper()
	awaittest.Until(t, "the end of the allocations of "+job, func() bool {
		list, _, err := c.API().Jobs().Allocations(job, true, &api.QueryOptions{Namespace: namespace})
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(list, func(a *api.AllocationListStub) bool { return a.ClientStatus == api.AllocClientStatusRunning })
	})
}
