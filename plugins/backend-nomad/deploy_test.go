package nomadbackend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
)

// deployFolder has the job specifications and policies that users take.
const deployFolder = "../../deploy/nomad"

// namespace is that of the policies.
const namespace = "python-executor"

// vaultSettings let the server accept jobs with a vault stanza. It makes no request to Vault.
const vaultSettings = `
vault {
  enabled = true
  address = "http://127.0.0.1:1"
  default_identity {
    aud = ["vault.io"]
    ttl = "1h"
  }
}
`

func TestTheDeployFolder(t *testing.T) {
	c, secure := securedCluster(t)
	c.Nomad(t, "namespace", "apply", namespace)
	t.Run("jobs are valid", func(t *testing.T) { jobsAreValid(t, c) })
	t.Run("the policy of jobs is enough, and no more", func(t *testing.T) { policyOfJobs(t, c, secure) })
	t.Run("the policy of workers is enough, and no more", func(t *testing.T) { policyOfWorkers(t, c, secure) })
	t.Run("the doctor knows the cluster", func(t *testing.T) { doctorKnows(t, c, secure) })
	t.Run("an execution of the mode job has enough rights", func(t *testing.T) { runsAsJob(t, c, secure) })
	t.Run("an execution of the mode workers has enough rights", func(t *testing.T) { runsOnWorker(t, c, secure) })
}

func jobsAreValid(t *testing.T, c *nomadtest.Cluster) {
	c.Nomad(t, "fmt", "-check", "-recursive", deployFolder)
	files, err := filepath.Glob(filepath.Join(deployFolder, "*.nomad.hcl"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range append(variants(string(raw)), string(raw)) {
			path := filepath.Join(t.TempDir(), "job.nomad.hcl")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, flags := range providers(text) {
				out := c.Nomad(t, append(append([]string{"job", "validate", "-namespace", namespace}, flags...), path)...)
				if !strings.Contains(out, "Job validation successful") || strings.Contains(out, "Warning") {
					t.Errorf("%s %v: %s\n%s", file, flags, out, text)
				}
			}
		}
	}
}

// providers returns the flags of each registry that a job specification can have.
func providers(text string) [][]string {
	if !strings.Contains(text, `variable "provider"`) {
		return [][]string{nil}
	}
	return [][]string{{"-var", "provider=nomad"}, {"-var", "provider=consul"}}
}

// variants returns a job specification once for each comment that has stanzas, with these stanzas in effect.
func variants(text string) (list []string) {
	comment := regexp.MustCompile(`(?m)(^ *#.*\n)+`)
	opening := regexp.MustCompile(`^ *# [a-z]+ \{$`)
	for _, at := range comment.FindAllStringIndex(text, -1) {
		var out strings.Builder
		inside, found := false, false
		for line := range strings.Lines(text[at[0]:at[1]]) {
			trimmed := strings.TrimRight(line, "\n")
			inside = inside || opening.MatchString(trimmed)
			if inside {
				found = true
				line = strings.Replace(line, "# ", "", 1)
			}
			inside = inside && strings.TrimSpace(trimmed) != "# }"
			out.WriteString(line)
		}
		if found {
			list = append(list, text[:at[0]]+out.String()+text[at[1]:])
		}
	}
	return list
}

func TestAVariantIsASpecificationWithAStanzaMore(t *testing.T) {
	list := variants("a\n  # Words.\n  #\n  # vault {\n  #   x = 1\n  # }\n  # More.\nb\n  # Words alone.\nc\n")
	if len(list) != 1 || list[0] != "a\n  # Words.\n  #\n  vault {\n    x = 1\n  }\n  # More.\nb\n  # Words alone.\nc\n" {
		t.Errorf("%q", list)
	}
}

// withPolicy returns a client with a token that has one of the policies, and the token.
func withPolicy(t *testing.T, c *nomadtest.Cluster, secure api.TLSConfig, policy string) (*api.Client, string) {
	t.Helper()
	c.Nomad(t, "acl", "policy", "apply", policy, filepath.Join(deployFolder, "policies", policy+".policy.hcl"))
	token, _, err := c.API().ACLTokens().Create(&api.ACLToken{Name: policy, Type: "client", Policies: []string{policy}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := api.NewClient(&api.Config{Address: c.Address(), SecretID: token.SecretID, Namespace: namespace, TLSConfig: &secure})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client, token.SecretID
}

// refused fails t unless err says that the token has no right.
func refused(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "403") { // some calls of the client drop the type
		t.Errorf("%s: %v, want 403", what, err)
	}
}

func policyOfJobs(t *testing.T, c *nomadtest.Cluster, secure api.TLSConfig) {
	client, _ := withPolicy(t, c, secure, "job-mode")
	job := batchJob("rights", dockertest.Python(t))
	allowed := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := client.EventStream().Stream(t.Context(), map[api.Topic][]string{api.TopicAllocation: {"*"}, api.TopicJob: {"*"}, api.TopicEvaluation: {"*"}}, 0, nil)
	allowed("events", err)
	_, _, err = client.Jobs().EnforceRegister(job, 0, nil)
	allowed("register", err)
	_, _, err = client.Jobs().ListOptions(&api.JobListOptions{Fields: &api.JobListFields{Meta: true}}, nil)
	allowed("list", err)
	_, _, err = client.Jobs().Info("rights", nil)
	allowed("info", err)
	_, _, err = client.Jobs().Evaluations("rights", nil)
	allowed("evaluations", err)
	alloc := ended(t, client, "rights")
	full, _, err := client.Allocations().Info(alloc, nil)
	allowed("allocation", err)
	if full != nil {
		_, _, err = client.AllocFS().Stat(full, "task/local", nil)
		allowed("stat", err)
		content, err := client.AllocFS().ReadAt(full, "task/local/out", 0, 10, nil)
		allowed("read", err)
		if err == nil {
			content.Close()
		}
		refused(t, "restart", client.Allocations().RestartAllTasks(full, nil))
		refused(t, "signal", client.Allocations().Signal(full, nil, "", "SIGTERM"))
	}
	// The client of the API cannot read the empty answer.
	if err := client.Allocations().GC(&api.Allocation{ID: alloc}, nil); !errors.Is(err, io.EOF) {
		allowed("collect the garbage", err)
	}
	_, _, err = client.Jobs().Deregister("rights", true, nil)
	allowed("deregister", err)

	elsewhere := (&api.QueryOptions{Namespace: "default"})
	_, _, err = client.Jobs().Info("rights", elsewhere)
	refused(t, "another namespace", err)
	_, _, err = client.Nodes().List(nil)
	refused(t, "nodes", err)
	_, err = client.Agent().Self()
	refused(t, "agent", err)
	_, err = client.ACLPolicies().Upsert(&api.ACLPolicy{Name: "more", Rules: "operator { policy = \"write\" }"}, nil)
	refused(t, "policies", err)
}

func policyOfWorkers(t *testing.T, c *nomadtest.Cluster, secure api.TLSConfig) {
	client, _ := withPolicy(t, c, secure, "workers-mode")
	if _, _, err := client.Services().Get("python-executor-worker", nil); err != nil {
		t.Errorf("services: %v", err)
	}
	_, _, err := client.Jobs().Register(batchJob("rights", "x"), nil)
	refused(t, "register", err)
	_, _, err = client.Services().Get("python-executor-worker", &api.QueryOptions{Namespace: "default"})
	refused(t, "another namespace", err)
}

// batchJob returns a job that writes a file.
func batchJob(id, image string) *api.Job {
	job := api.NewBatchJob(id, id, "global", 50).AddDatacenter("*")
	task := api.NewTask("task", "docker")
	task.Config = map[string]any{"image": image, "command": "sh", "args": []string{"-c", "echo 42 >/local/out"}}
	return job.AddTaskGroup(api.NewTaskGroup("group", 1).AddTask(task))
}

// ended waits until the only allocation of a job is complete, and returns its id.
func ended(t *testing.T, client *api.Client, job string) string {
	t.Helper()
	ctx := awaittest.Context(t)
	query := (&api.QueryOptions{WaitTime: 10 * time.Second}).WithContext(ctx)
	for {
		list, meta, err := client.Jobs().Allocations(job, true, query)
		switch {
		case err != nil:
			t.Fatalf("allocations: %v, %v", err, context.Cause(ctx))
		case len(list) == 1 && list[0].ClientStatus == api.AllocClientStatusComplete:
			return list[0].ID
		case len(list) == 1 && list[0].ClientStatus == api.AllocClientStatusFailed:
			t.Fatalf("the job failed: %+v", list[0].TaskStates["task"])
		}
		query.WaitIndex = meta.LastIndex
	}
}

func doctorKnows(t *testing.T, c *nomadtest.Cluster, secure api.TLSConfig) {
	_, token := withPolicy(t, c, secure, "workers-mode")
	section := func(token string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"address":%q,"namespace":%q,"token":%q,"tls":%s}`, c.Address(), namespace, token, tlsSection(secure)))
	}
	levels := func(token string) map[string]backend.Level {
		found := map[string]backend.Level{}
		for _, f := range Doctor(t.Context(), section(token)) {
			found[f.Topic] = f.Level
		}
		return found
	}
	if found := levels(token); found["token"] != backend.LevelOK || found["nomad"] != backend.LevelOK {
		t.Errorf("%+v", found)
	}
	if found := levels("00000000-0000-0000-0000-000000000000"); found["token"] != backend.LevelError {
		t.Errorf("a wrong token: %+v", found)
	}
	if found := levels(""); found["token"] != backend.LevelError {
		t.Errorf("no token: %+v", found)
	}
	open := nomadtest.Shared(t)
	found := map[string]string{}
	for _, f := range Doctor(t.Context(), json.RawMessage(fmt.Sprintf(`{"address":%q}`, open.Address()))) {
		found[f.Topic] = string(f.Level) + " " + f.Message
	}
	if !strings.HasPrefix(found["token"], "warn the cluster has no ACLs") || !strings.Contains(found["nomad"], "version 1.") {
		t.Errorf("%+v", found)
	}
}
