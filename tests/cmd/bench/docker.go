package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
	"github.com/python-executor/python-executor/tests/internal/serve"
)

// docker is the part of the benchmark that needs one: two servers, with containers that wait and without, and a container
// of the peer's that is always there.
type docker struct {
	host, image, dir string
	warm, cold       *serve.Server
	peer             string
}

// The series of single calls.
const (
	dockerRun  = "docker run, hardened"
	dockerExec = "docker exec, warm container"
	dockerWarm = "docker http sync, warm"
	dockerCold = "docker http sync, cold"
)

// dockerNames are what a choice of cases may match of it.
var dockerNames = []string{
	dockerRun, dockerExec, dockerWarm, dockerCold, dockerRateSync, dockerRateRun,
	"docker idle", "docker sustained", "docker neighbours", "docker tar", dockerTar, dockerUVTar,
}

// hardening is what `docker run` needs to be told to do the same.
var hardening = []string{
	"--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "1000:1000", "--pids-limit", "272",
	"--memory", "3g", "--memory-swap", "3g", "--cpu-shares", "1024", "--ulimit", "core=0", "--ipc", "private",
	"--tmpfs", "/work:rw,exec,nosuid,nodev,size=2g,uid=1000,gid=1000,mode=0700", "--tmpfs", "/tmp:rw,nosuid,nodev,size=64m", "--workdir", "/work",
}

var helloCommand = []string{"python3", "-c", "print('hello')"}

// startDocker starts it; nil without an error: there is no Docker here, and it has said so.
func startDocker(r *report, dir, binary string) (_ *docker, err error) {
	host, err := dockertest.Find()
	if err == nil {
		_, err = exec.LookPath("docker")
	}
	if err != nil {
		fmt.Println("no Docker is at hand: nothing of it is measured:", err)
		return nil, nil
	}
	d := &docker{host: host, dir: filepath.Join(dir, "docker")}
	defer func() {
		if err != nil {
			d.stop()
		}
	}()
	if d.image, err = dockertest.Import(context.Background(), host, "python"); err != nil {
		return nil, err
	}
	r.Versions["docker"] = d.line("version", "--format", "{{.Server.Version}}, {{.Server.KernelVersion}}")
	r.Machine["docker storage and cgroups"] = d.line("info", "--format", "{{.Driver}}, v{{.CgroupVersion}}")
	if d.warm, err = d.server(binary, "warm"); err != nil {
		return nil, err
	}
	if d.cold, err = d.server(binary, "cold", "PYEXEC_BACKENDS_DOCKER_POOL_MIN_IDLE=0", "PYEXEC_BACKENDS_DOCKER_POOL_SESSIONS=0"); err != nil {
		return nil, err
	}
	args := append(append([]string{"run", "--detach", "--rm"}, hardening...), d.image, "sleep", "infinity")
	d.peer = d.line(args...)
	return d, nil
}

func (d *docker) server(binary, name string, env ...string) (*serve.Server, error) {
	dir := filepath.Join(d.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &serve.Server{Binary: binary, Dir: dir, Env: append([]string{
		"PYEXEC_BACKEND=docker", "PYEXEC_BACKENDS_DOCKER_HOST=" + d.host, "PYEXEC_BACKENDS_DOCKER_DEFAULT_IMAGE=" + d.image,
	}, env...)}
	return s, s.Start()
}

// stop ends all of it but the daemon. Safe with what was not started.
func (d *docker) stop() {
	if d == nil {
		return
	}
	for _, s := range []*serve.Server{d.warm, d.cold} {
		if s != nil {
			s.Stop()
		}
	}
	if d.peer != "" {
		d.line("rm", "--force", d.peer)
	}
}

// line is the first line of what the docker command says.
func (d *docker) line(args ...string) string {
	return firstLine("docker", append([]string{"--host", d.host}, args...)...)
}

// command runs the docker command, which must say hello.
func (d *docker) command(args ...string) error {
	return command(nil, "docker", append([]string{"--host", d.host}, args...)...)
}

// cases are interleaved with the others. A sandbox of ours takes part in each round of "warm", so one waits each time.
func (d *docker) cases() []measure {
	if d == nil {
		return nil
	}
	run := append(append(append([]string{"run", "--rm"}, hardening...), d.image), helloCommand...)
	return []measure{
		{dockerRun, 2, timed(func() error { return d.command(run...) })},
		{dockerExec, 2, timed(func() error { return d.command(append([]string{"exec", d.peer}, helloCommand...)...) })},
		{dockerWarm, 1, timed(func() error { return sync(d.warm, httpHello) })},
		{dockerCold, 2, timed(func() error { return sync(d.cold, httpHello) })},
	}
}

// instance is the label of everything that a server has in the daemon.
func instance(s *serve.Server) (string, error) {
	raw, err := os.ReadFile(filepath.Join(s.Dir, "data", "instance"))
	return "python-executor.instance=" + strings.TrimSpace(string(raw)), err
}
