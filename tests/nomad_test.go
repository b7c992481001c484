package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// onNomad is a server whose executions are jobs of a Nomad of its own.
type onNomad struct {
	*server
	cluster *nomadtest.Cluster
}

// startOnNomad starts the cluster and the server. Its default backend has the defaults of the mode job. The backend "brief" keeps ended
// jobs for two seconds, and files in memory, so that it takes disk_mb. After the test no job of the server may run, and no container of it
// may be there.
func startOnNomad(t *testing.T) onNomad {
	t.Helper()
	image := dockertest.Python(t)
	n, label := onNomad{cluster: nomadtest.Start(t, nomadtest.Options{})}, ""
	t.Cleanup(func() { // after the server was stopped
		if label != "" {
			n.nothingLeft(label)
		}
	})
	config := filepath.Join(t.TempDir(), "server.yaml")
	text := fmt.Sprintf(`backend: nomad
backends:
  nomad: {type: nomad, mode: job, address: %[1]q, job: {default_image: %[2]q}}
  brief: {type: nomad, mode: job, address: %[1]q, job: {default_image: %[2]q, purge_after_seconds: 2, work: memory}}
http: {tokens: [{owner: ann, sha256: %[3]s}]}
`, n.cluster.Address(), image, sha("secret"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n.server = startServer(t, nil, "--config", config)
	n.token, label = "secret", strings.Replace(n.label(), "python-executor.instance", "python-executor.nomad-instance", 1)
	return n
}

// in returns n for a subtest.
func (n onNomad) in(t *testing.T) onNomad {
	s := *n.server
	s.t = t
	return onNomad{&s, n.cluster}
}

// environ makes the CLI and the SDKs use the server.
func (n onNomad) environ() []string {
	return []string{"PYEXEC_SERVER=" + n.url, "PYEXEC_TOKEN=" + n.token}
}

// jobOf is the job of an execution.
func jobOf(id string) string { return "python-executor-" + id }

// nomad runs the nomad command, which may fail.
func (n onNomad) nomad(args ...string) (stdout string, err error) {
	var said strings.Builder
	cmd := n.cluster.Command(n.t.Context(), args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("nomad %s: %w: %s", strings.Join(args, " "), err, said.String())
	}
	return string(out), err
}

// answers runs the nomad command and decodes the JSON that it prints.
func (n onNomad) answers(v any, args ...string) {
	n.t.Helper()
	out, err := n.nomad(args...)
	if err == nil {
		err = json.Unmarshal([]byte(out), v)
	}
	if err != nil {
		n.t.Fatalf("%v: %s", err, out)
	}
}

// allocation is one of Nomad, as far as it is looked at here.
type allocation struct {
	ID, JobID, ClientStatus, NodeName string
	Job                               struct {
		Status     string
		Meta       map[string]string
		TaskGroups []struct {
			Tasks []struct {
				Name, Driver string
				Config       map[string]any
			}
		}
	}
	TaskStates map[string]struct{ State string }
}

// allocation returns the only allocation of an execution, as the nomad command shows it.
func (n onNomad) allocation(id string) allocation {
	n.t.Helper()
	var list []struct{ ID string }
	n.answers(&list, "job", "allocs", "-json", jobOf(id))
	if len(list) != 1 {
		n.t.Fatalf("%d allocations of %s", len(list), id)
	}
	var a allocation
	n.answers(&a, "alloc", "status", "-json", list[0].ID)
	n.t.Logf("%s is allocation %s on %s", id, a.ID, a.NodeName)
	return a
}

// nothingLeft fails the test if a job runs, or a container with a label of the server is there.
func (n onNomad) nothingLeft(label string) {
	awaittest.Until(n.t, "all jobs have ended, and their containers are gone", func() bool {
		out, err := n.cluster.Command(context.Background(), "job", "status").CombinedOutput()
		if err != nil {
			n.t.Fatalf("nomad job status: %v: %s", err, out)
		}
		alive := slices.ContainsFunc(strings.Split(string(out), "\n"), func(line string) bool {
			return strings.HasPrefix(line, jobOf("")) && !strings.Contains(line, " dead ")
		})
		return !alive && len(dockertest.Containers(n.t, label)) == 0
	})
}

// TestTheSpecificationOnNomad is the PRD on a real Nomad with a container for each execution: HTTP, CLI and both SDKs, seen from inside the
// sandbox and by the nomad command.
func TestTheSpecificationOnNomad(t *testing.T) {
	all := startOnNomad(t)
	var together sync.WaitGroup
	for _, test := range []struct {
		name string
		run  func(t *testing.T, n onNomad)
	}{
		{"the metadata of the specification", specificationOnNomad},
		{"the sandbox from inside", insideOnNomad},
		{"async, poll and kill, seen by the nomad command", killOnNomad},
		{"async to the end, with artifacts", asyncOnNomad},
		{"failures of programs", failuresOnNomad},
		{"the CLI", cliOnNomad},
		{"the Go SDK", goOnNomad},
		{"the Python SDK", pythonOnNomad},
		{"an ended job is purged after the configured delay", purgeOnNomad},
	} {
		together.Go(func() { // parallel tests would take turns, one for each CPU; here most of the time passes in waiting
			t.Run(test.name, func(t *testing.T) { test.run(t, all.in(t)) })
		})
	}
	together.Wait()
}

// specificationOnNomad sends the PRD's metadata, with a small requirement. Its commands install no packages of the system: on Nomad they
// are not root's, and the image is read-only.
func specificationOnNomad(t *testing.T, n onNomad) {
	metadata, err := json.Marshal(map[string]any{
		"entrypoint": "main.py", "docker_image": dockertest.Python(t), "requirements_txt": "six==1.17.0",
		"pre_commands": []string{"id -u >who.txt", "echo prepared >>who.txt"}, "stdin": "optional input string", "backend": "brief",
		"config": map[string]any{"timeout_seconds": 300, "network_disabled": true, "memory_mb": 1024, "disk_mb": 2048, "cpu_shares": 1024},
	})
	if err != nil {
		t.Fatal(err)
	}
	program := "import sys, six\nfrom utils.helpers import shout\nprint(shout(sys.stdin.read()), six.__version__, open('who.txt').read().split())"
	a := n.multipart("/api/v1/exec/sync",
		part{name: "metadata", contentType: "application/json", body: metadata},
		part{name: "tar", filename: "project.tar", body: tarOf(t, file{"main.py", program}, file{"utils/helpers.py", "def shout(s): return s.upper()"})})
	r := a.json(t)
	checkKeys(t, r)
	if e, _ := r["error"].(map[string]any); e["code"] == "unavailable" {
		t.Logf("%s", a.body)
		skipWithout(t, "index", false)
	}
	if r["status"] != "succeeded" || r["stdout"] != "OPTIONAL INPUT STRING 1.17.0 ['1000', 'prepared']\n" || r["backend"] != "brief" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if list, _ := r["resolved_requirements"].([]any); !slices.Contains(list, any("six==1.17.0")) {
		t.Errorf("resolved %v", list)
	}
}

// inside prints what a program sees of its sandbox.
const inside = `import json, os, socket
def fails(do):
    try:
        do()
    except OSError as e:
        return type(e).__name__
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
print(json.dumps({
    "uid": os.getresuid(), "gid": os.getresgid(), "cap": status["CapEff"], "no_new_privs": status["NoNewPrivs"], "seccomp": status["Seccomp"],
    "cwd": os.getcwd(), "read_only": bool(os.statvfs("/").f_flag & os.ST_RDONLY), "write": fails(lambda: open("/usr/x", "w")),
    "interfaces": os.listdir("/sys/class/net"), "connect": fails(lambda: socket.create_connection((HOST, PORT), 5)),
    "nomad": sorted(name for name in os.environ if "NOMAD" in name), "secrets": fails(lambda: os.listdir("/secrets")),
    "work": open("x", "w").write("work"),
}))`

func insideOnNomad(t *testing.T, n onNomad) {
	host, port, _ := strings.Cut(strings.TrimPrefix(n.url, "http://"), ":")
	code, err := json.Marshal("HOST, PORT = " + fmt.Sprintf("%q, %s\n", host, port) + inside)
	if err != nil {
		t.Fatal(err)
	}
	r := n.post("/api/v1/exec/sync", `{"code":`+string(code)+`}`).json(t)
	if r["status"] != "succeeded" {
		t.Fatal(r)
	}
	want := `{"uid": [1000, 1000, 1000], "gid": [1000, 1000, 1000], "cap": "0000000000000000", "no_new_privs": "1", "seccomp": "2", ` +
		`"cwd": "/work", "read_only": true, "write": "OSError", "interfaces": ["lo"], "connect": "ConnectionRefusedError", "nomad": [], ` +
		`"secrets": "PermissionError", "work": 4}`
	if got := strings.TrimSpace(fmt.Sprint(r["stdout"])); got != want {
		t.Errorf("inside:\n%s\nwant:\n%s", got, want)
	}
}

// outside prints what root sees in a container: the file system, the network, and the users of the programs of this name.
const outside = `grep -o ' / [a-z]* r[ow]' /proc/mounts; ls /sys/class/net
for p in /proc/[0-9]*; do [ "$(cat $p/comm)" != python3 ] || grep Uid: $p/status; done`

func killOnNomad(t *testing.T, n onNomad) {
	id := n.async(`{"code":"import sys, time\nprint('err', file=sys.stderr)\nprint('up', flush=True)\ntime.sleep(600)"}`)
	n.up(id)
	hasStatus := func(want string) {
		t.Helper()
		status := ""
		defer func() {
			if t.Failed() {
				t.Logf("nomad job status says\n%s", status)
			}
		}()
		awaittest.Until(t, "nomad job status says "+want, func() bool {
			status = n.cluster.Nomad(t, "job", "status", jobOf(id))
			return strings.Contains(status, "Status        = "+want)
		})
	}
	hasStatus("running")
	var a allocation
	awaittest.Until(t, "nomad alloc status shows the start", func() bool { // the output may be there before Nomad knows the start
		a = n.allocation(id)
		return a.ClientStatus == "running"
	})
	if a.JobID != jobOf(id) || a.Job.Meta["python-executor.execution"] != id || a.Job.Meta["python-executor.owner"] != "ann" {
		t.Errorf("nomad alloc status says %+v", a)
	}
	task := a.Job.TaskGroups[0].Tasks[0]
	if task.Driver != "docker" || task.Config["network_mode"] != "none" || task.Config["readonly_rootfs"] != true {
		t.Errorf("the task is %+v", task)
	}
	seen := strings.Fields(n.cluster.Nomad(t, "alloc", "exec", "-i=false", "-t=false", "-task", task.Name, a.ID, "sh", "-c", outside))
	if len(seen) < 4 || seen[0] != "/" || seen[2] != "ro" || seen[3] != "lo" || strings.Join(seen[4:], " ") != "Uid: 1000 1000 1000 1000" {
		t.Errorf("nomad alloc exec says %q", seen)
	}
	for stream, want := range map[string]string{"-stdout": "up\n", "-stderr": "err\n"} {
		// Another process of Nomad's carries the output. It stops with the program, also if it has not read all.
		awaittest.Until(t, "nomad alloc logs "+stream+" shows the output", func() bool {
			return n.cluster.Nomad(t, "alloc", "logs", stream, "-task", task.Name, a.ID) == want
		})
	}
	if answer := n.do(n.request("DELETE", "/api/v1/executions/"+id, nil)).json(t); answer["status"] != "killed" {
		t.Error(answer)
	}
	n.wait(id, "killed")
	awaittest.Until(t, "the container is gone", func() bool {
		return len(dockertest.Containers(t, "com.hashicorp.nomad.alloc_id="+a.ID)) == 0
	})
	hasStatus("dead (stopped)")
}

func asyncOnNomad(t *testing.T, n onNomad) {
	id := n.async(`{"code":"import sys\nfor i in range(3): print(i)\nprint('err', file=sys.stderr)\nopen('out.txt', 'w').write('kept')","outputs":["*.txt"]}`)
	r := n.wait(id, "succeeded", "failed", "lost")
	checkKeys(t, r)
	if r["stdout"] != "0\n1\n2\n" || r["stderr"] != "err\n" || r["exit_code"] != 0.0 || r["attempts"] != 1.0 {
		t.Error(r)
	}
	if a := n.get("/api/v1/executions/" + id + "/artifacts/out.txt"); string(a.body) != "kept" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := n.get("/api/v1/executions/" + id + "/events"); !strings.Contains(string(a.body), "event: finished") {
		t.Errorf("%s", a.body)
	}
	awaittest.Until(t, "nomad alloc status shows the end", func() bool { // the result may be there before Nomad knows the end
		a := n.allocation(id)
		return a.ClientStatus == "complete" && a.TaskStates["program"].State == "dead"
	})
}

// failuresOnNomad are the program's, so each is a result.
func failuresOnNomad(t *testing.T, n onNomad) {
	ids := map[string]string{
		"failed":        n.async(`{"code":"raise SystemExit(3)"}`),
		"out_of_memory": n.async(`{"code":"x = bytearray(1 << 30)","config":{"memory_mb":64}}`),
		"timed_out":     n.async(`{"code":"print('up', flush=True)\nimport time; time.sleep(600)","config":{"timeout_seconds":1}}`),
	}
	for want, id := range ids {
		if r := n.wait(id, "succeeded", "failed", "out_of_memory", "timed_out", "killed", "lost"); r["status"] != want || want == "failed" && r["exit_code"] != 3.0 {
			t.Errorf("%s: %v", want, r)
		}
	}
	r := n.post("/api/v1/exec/sync", `{"code":"1","docker_image":"evil.example.org/x"}`)
	if !strings.Contains(string(r.body), `"docker_image"`) {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func cliOnNomad(t *testing.T, n onNomad) {
	dir, out := tree(t, file{"train.py", "import os; print(os.environ['KEY'], open('data.csv').read()); open('model.bin', 'w').write('m')"}, file{"data.csv", "a,b"}), t.TempDir()
	o := cli(t, n.environ(), nil, "run", dir, "--entrypoint", "train.py", "--timeout", "60", "--memory", "256", "--env", "KEY=value", "--artifact", "*.bin", "--output", out)
	if model, err := os.ReadFile(filepath.Join(out, "model.bin")); o.code != 0 || o.stdout != "value a,b\n" || err != nil || string(model) != "m" {
		t.Errorf("run: %+v, %q, %v", o, model, err)
	}
	if o := cli(t, n.environ(), strings.NewReader("raise SystemExit(3)"), "run"); o.code != 3 {
		t.Errorf("a failing program: %+v", o)
	}
	id := strings.TrimSpace(cli(t, n.environ(), strings.NewReader("print('from a pipe')"), "submit", "--async").stdout)
	for _, args := range [][]string{{"follow", "--tail", id}, {"logs", "-f", id}} {
		if o := cli(t, n.environ(), nil, args...); o.code != 0 || o.stdout != "from a pipe\n" {
			t.Errorf("%v: %+v", args, o)
		}
	}
	long := strings.TrimSpace(cli(t, n.environ(), strings.NewReader("print('up', flush=True)\nimport time; time.sleep(600)"), "submit").stdout)
	n.up(long)
	if o := cli(t, n.environ(), nil, "kill", long); o.code != 0 {
		t.Errorf("kill: %+v", o)
	}
	n.wait(long, "killed")
	if o := cli(t, n.environ(), nil, "ls"); !strings.Contains(o.stdout, id) || !strings.Contains(o.stdout, long) {
		t.Errorf("ls: %+v", o)
	}
	if o := cli(t, n.environ(), nil, "backends"); !strings.Contains(o.stdout, "disk_mb is not enforced") {
		t.Errorf("backends: %+v", o)
	}
}

func goOnNomad(t *testing.T, n onNomad) {
	ctx := awaittest.Context(t)
	client, err := pyexec.NewClient(n.url, pyexec.WithToken(n.token))
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	ran, err := client.Run(ctx, pyexec.Spec{Code: "print(6 * 7)\nopen('a.txt', 'w').write('kept')", Outputs: []string{"*.txt"}}, pyexec.Input{})
	if err != nil || ran.Status != pyexec.StatusSucceeded || ran.Stdout != "42\n" {
		t.Fatalf("run: %+v, %v", ran, err)
	}
	kept, err := client.Artifact(ctx, ran.ExecutionID, "a.txt")
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(kept)
	if err := errors.Join(err, kept.Close()); err != nil || string(content) != "kept" {
		t.Errorf("artifact: %q, %v", content, err)
	}
	id, err := client.Submit(ctx, pyexec.Spec{Code: "print('up', flush=True)\nimport time; time.sleep(600)"}, pyexec.Input{})
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for event, err := range client.Events(ctx, id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		kinds[event.Body.Kind()] = true
		if _, ok := event.Body.(pyexec.Output); ok {
			if status, err := client.Cancel(ctx, id); err != nil || status != pyexec.StatusKilled {
				t.Fatalf("cancel: %s, %v", status, err)
			}
		}
	}
	killed, err := client.Get(ctx, id)
	if err != nil || killed.Status != pyexec.StatusKilled || !kinds["started"] || !kinds["finished"] {
		t.Errorf("kill: %+v, %v, %v", killed, kinds, err)
	}
}

// pythonCalls are the same calls by the Python SDK.
const pythonCalls = `import python_executor
client = python_executor.Client()
ran = client.run("print(6 * 7)\nopen('a.txt', 'w').write('kept')", outputs=["*.txt"], memory_mb=256)
print(ran.status, ran.stdout.strip(), client.artifacts(ran))
print(client.wait(client.submit("raise SystemExit(3)")).exit_code)
long = client.submit("print('up', flush=True)\nimport time; time.sleep(600)")
with client.follow(long) as events:
    for event in events:
        if isinstance(event, python_executor.Output):
            print(event.data, client.cancel(long))
print(client.get(long).status)
`

func pythonOnNomad(t *testing.T, n onNomad) {
	python, err := exec.CommandContext(t.Context(), "../tools/sdk-python.sh", "python").Output()
	skipWithout(t, "index", err == nil)
	ctx := awaittest.Context(t)
	cmd := exec.CommandContext(ctx, strings.TrimSpace(string(python)), "-c", pythonCalls) //nolint:gosec // our own tool prints it
	cmd.Env = environ(append(n.environ(), "PYTHONPATH=../sdk/python/src")...)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if want := "succeeded 42 {'a.txt': b'kept'}\n3\nb'up\\n' killed\nkilled\n"; err != nil || string(out) != want {
		t.Errorf("%v, %v: %q, want %q", err, context.Cause(ctx), out, want)
	}
}

func purgeOnNomad(t *testing.T, n onNomad) {
	kept := n.async(`{"code":"print('kept')"}`)
	id := n.async(`{"code":"print('up', flush=True)\nimport time; time.sleep(600)","backend":"brief"}`)
	n.up(id)
	a := n.allocation(id)
	if answer := n.do(n.request("DELETE", "/api/v1/executions/"+id, nil)).json(t); answer["status"] != "killed" {
		t.Error(answer)
	}
	n.wait(kept, "succeeded")
	for _, args := range [][]string{{"job", "status", jobOf(id)}, {"alloc", "status", a.ID}} {
		awaittest.Until(t, "Nomad knows neither the job nor the allocation", func() bool {
			_, err := n.nomad(args...)
			return err != nil && (strings.Contains(err.Error(), "No job(s) with prefix") || strings.Contains(err.Error(), "No allocation(s) with prefix"))
		})
	}
	if r := n.get("/api/v1/executions/" + id).json(t); r["status"] != "killed" || r["stdout"] != "up\n" {
		t.Errorf("the server forgot what Nomad purged: %v", r)
	}
	if status := n.cluster.Nomad(t, "job", "status", jobOf(kept)); !strings.Contains(status, "dead") {
		t.Errorf("the job that has five minutes is not there:\n%s", status)
	}
}
