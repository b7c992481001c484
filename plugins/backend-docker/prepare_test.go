package dockerbackend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// TestRequirementsAreThereWithoutANetwork from an index, an extra index and a folder.
func TestRequirementsAreThereWithoutANetwork(t *testing.T) {
	t.Parallel()
	house, extra, links := newWheelhouse(t), newWheelhouse(t), newWheelhouse(t)
	house.probe()
	for name, of := range map[string]*wheelhouse{"pyexec-extra": extra, "pyexec-linked": links} {
		module := strings.ReplaceAll(name, "-", "_")
		of.add(name, "1.0", map[string]string{module + ".py": ""})
	}
	b := openBackend(t, map[string]any{"prepare": map[string]any{"index_url": house.url(t), "extra_index_urls": []string{extra.url(t)}, "find_links": links.folder(t)}})
	forgetPrepared(t, b)
	out, r := succeeds(t, b, executor.Spec{
		Code: "import pyexec_probe, pyexec_base, pyexec_extra, pyexec_linked, sys; print(pyexec_probe.__version__, pyexec_base.__version__, sys.prefix)\n" +
			"import socket\ntry:\n  socket.create_connection(('1.1.1.1', 53), 1)\nexcept OSError as e: print('no network')",
		Requirements: "pyexec_probe < 2   # a comment\npyexec-extra\npyexec-linked\n",
	})
	if out != "1.2.3 1.0 "+preparedEnv+"\nno network\n" {
		t.Errorf("got %q", out)
	}
	if want := []string{"pyexec-base==1.0", "pyexec-extra==1.0", "pyexec-linked==1.0", "pyexec-probe==1.2.3"}; !slices.Equal(r.Requirements, want) {
		t.Errorf("resolved %v, want %v", r.Requirements, want)
	}
	if !strings.HasPrefix(r.ImageDigest, "sha256:") || r.PythonVersion == "" {
		t.Errorf("digest %q, python %q", r.ImageDigest, r.PythonVersion)
	}
}

func TestRequirementsInstalledWithPipAreTheSame(t *testing.T) {
	t.Parallel()
	house := newWheelhouse(t)
	house.probe()
	b := openBackend(t, map[string]any{"prepare": map[string]any{"index_url": house.url(t)}})
	b.images.settings.uv = "" // as on a host without uv
	forgetPrepared(t, b)
	out, r := succeeds(t, b, executor.Spec{Code: "import pyexec_probe; print(pyexec_probe.__version__)", Requirements: "pyexec-probe"})
	if want := []string{"pyexec-base==1.0", "pyexec-probe==2.0"}; out != "2.0\n" || !slices.Equal(r.Requirements, want) {
		t.Errorf("%q, %v", out, r.Requirements)
	}
}

func TestAnImageWithoutShellAndPipNeedsAUVThatRunsInIt(t *testing.T) {
	t.Parallel()
	house := newWheelhouse(t)
	house.probe()
	b := openBackend(t, map[string]any{"prepare": map[string]any{"index_url": house.url(t)}})
	forgetPrepared(t, b)
	spec := executor.Spec{Image: dockertest.Bare(t), Code: "import pyexec_probe; print(pyexec_probe.__version__)", Requirements: "pyexec-probe==1.2.3"}
	// A dynamically linked uv needs libraries that few images have. A static one needs none.
	if isStatic(t, b.images.settings.uv) {
		if out, _ := succeeds(t, b, spec); out != "1.2.3\n" {
			t.Errorf("got %q", out)
		}
	}
	b.images.settings.uv = ""
	spec.Requirements = "pyexec-probe==2.0"
	if f := fails(t, b, spec); f.Code != executor.Invalid || f.Field != "requirements_txt" || !strings.Contains(f.Message, "neither pip nor venv") {
		t.Errorf("got %+v", f)
	}
}

func TestCommandsRunAsRootWithFewRightsAndTheProgramDoesNot(t *testing.T) {
	t.Parallel()
	b := commonBackend(t)
	forgetPrepared(t, b)
	unique := random()
	var j journal
	r, err := b.Run(t.Context(), job(executor.Spec{
		Code: "print(open('/opt/made').read(), end='')\nimport os; print(os.getuid())\nprint(os.statvfs('/opt').f_flag & os.ST_RDONLY)\nprint(os.environ.get('DEBIAN_FRONTEND'), os.path.exists('" + toolsFolder + "'))",
		PreCommands: []string{
			"id -u >/opt/made; grep CapEff /proc/self/status | cut -f2 >>/opt/made",
			"", // nothing
			"mount -t tmpfs none /mnt 2>/dev/null; echo $? >>/opt/made # it's " + unique,
			"cat >>/opt/made; echo \"$DEBIAN_FRONTEND\" >>/opt/made", // no input
		},
	}), &j)
	if err != nil || r.Status != executor.StatusSucceeded {
		t.Fatalf("%v %+v %+v %s", err, r, r.Failure, j.stderr.String())
	}
	if want := "0\n00000000800000db\n32\nnoninteractive\n1000\n1\nNone False\n"; j.stdout.String() != want {
		t.Errorf("got %q, want %q", j.stdout.String(), want)
	}
	if !slices.ContainsFunc(j.progress, func(p executor.Progress) bool {
		return p.Phase == executor.PhasePrepare && strings.HasPrefix(p.Message, "running ")
	}) {
		t.Errorf("progress %v", j.progress)
	}
}

// TestWhatAPreparationFailsWith, and that it makes no image: with one, the second try would start the program. BE-54 and package
// requirements test what commands fail with.
func TestWhatAPreparationFailsWith(t *testing.T) {
	t.Parallel()
	b := openBackend(t, map[string]any{"prepare": map[string]any{"memory_mb": 96, "disk_mb": 64, "network": "none"}})
	for name, c := range map[string]struct {
		spec  executor.Spec
		want  executor.Failure
		again bool
	}{
		"an image without a shell": {
			executor.Spec{Image: dockertest.Bare(t), PreCommands: []string{"true"}}, executor.Failure{Code: executor.Invalid, Field: "pre_commands", Message: "no /bin/sh"}, false,
		},
		"a command that kills its shell": {
			executor.Spec{PreCommands: []string{"kill -9 $$"}}, executor.Failure{Code: executor.Invalid, Field: "pre_commands", Message: "\" ended with exit code 137 (SIGKILL)"}, true,
		},
		"a command that writes much and does not end": {
			executor.Spec{PreCommands: []string{"echo begun; head -c 200000000 /dev/zero >/big; sleep 1000"}}, executor.Failure{
				Code: executor.Exhausted, Field: "pre_commands", Message: "wrote more than 64 MiB (backends.docker.prepare.disk_mb):\nbegun",
			}, false,
		},
		"a command whose child wants much memory": {
			executor.Spec{PreCommands: []string{"echo begun; python3 -c 'x = bytearray(500 << 20)' || exit 5"}}, executor.Failure{
				Code: executor.Exhausted, Field: "pre_commands", Message: "needed more than 96 MiB of memory (backends.docker.prepare.memory_mb):\nbegun",
			}, false,
		},
		"a command that wants much memory": {
			executor.Spec{PreCommands: []string{"exec python3 -c 'x = bytearray(500 << 20)'"}}, executor.Failure{Code: executor.Exhausted, Field: "pre_commands", Message: "memory"}, false,
		},
		"a command that writes much": {
			executor.Spec{PreCommands: []string{"head -c 200000000 /dev/zero >/big"}}, executor.Failure{Code: executor.Exhausted, Field: "pre_commands", Message: "disk_mb"}, true,
		},
		"an option": {
			executor.Spec{Requirements: "--index-url https://example.org\nx"}, executor.Failure{Code: executor.Invalid, Field: "requirements_txt", Message: "options are not allowed"}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.spec.Code = "print('ran')"
			for tries := 1; tries == 1 || tries == 2 && c.again; tries++ {
				f := fails(t, b, c.spec)
				if f.Code != c.want.Code || f.Field != c.want.Field || f.Phase != executor.PhasePrepare || !strings.Contains(f.Message, c.want.Message) {
					t.Errorf("got %+v", f)
				}
			}
		})
	}
}

// TestACommandThatNeverEndsIsOutOfTime and is named, with its last words.
func TestACommandThatNeverEndsIsOutOfTime(t *testing.T) {
	t.Parallel()
	var f executor.Failure
	var within time.Duration
	for _, within = range []time.Duration{5 * time.Second, time.Minute} { // a busy machine may need the longer one until the command runs
		b := openBackend(t, map[string]any{"prepare": map[string]any{"timeout_seconds": within.Seconds(), "network": "none"}})
		if f = fails(t, b, executor.Spec{Code: "print('ran')", PreCommands: []string{"true", "echo asleep; sleep 1000"}}); strings.HasSuffix(f.Message, "\nasleep") {
			break
		}
	}
	want := fmt.Sprintf("pre_commands[1] \"echo asleep; sleep 1000\" was still running: not prepared within %s (backends.docker.prepare.timeout_seconds):\nasleep", within)
	if f.Code != executor.Exhausted || f.Field != "pre_commands" || f.Phase != executor.PhasePrepare || f.Message != want {
		t.Errorf("got %+v, want %s", f, want)
	}
}

func TestAPreparationThatTimesOutBeforeItsContainerSaysSo(t *testing.T) {
	t.Parallel()
	b := openBackend(t, nil)
	b.images.settings.timeout = time.Millisecond
	for name, spec := range map[string]executor.Spec{"commands": {PreCommands: []string{"true " + t.Name()}}, "requirements": {Requirements: "pyexec-never-made"}} {
		spec.Code = "print('ran')"
		if f := fails(t, b, spec); f.Code != executor.Exhausted || f.Phase != executor.PhasePrepare || f.Message != "not prepared within 1ms (backends.docker.prepare.timeout_seconds)" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// TestAPreparationThatIsKilledIsNotTheCommandsFault: the kill was requested from the daemon.
func TestAPreparationThatIsKilledIsNotTheCommandsFault(t *testing.T) {
	t.Parallel()
	b := openBackend(t, map[string]any{"prepare": map[string]any{"network": "none"}})
	for name, kill := range map[string]func(id string) error{
		"killed":  func(id string) error { return b.daemon.api.ContainerKill(t.Context(), id, "KILL") },
		"removed": func(id string) error { return b.daemon.remove(t.Context(), id) },
	} {
		var once sync.Once
		j := journal{on: func(e executor.Event) error {
			if p, ok := e.Body.(executor.Progress); ok && strings.HasPrefix(p.Message, "running") {
				once.Do(func() {
					list, err := b.daemon.containers(t.Context(), map[string]string{labelInstance: b.place.Instance, labelKind: kindPrepare})
					if err != nil || len(list) != 1 {
						t.Errorf("%s: %v, %v", name, list, err)
						return
					}
					if err := kill(list[0].ID); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			return nil
		}}
		r, err := b.Run(t.Context(), job(executor.Spec{Code: "1", PreCommands: []string{"sleep 1000 # " + random()}}), &j)
		if executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("%s: %v, %+v, %+v", name, err, r, r.Failure)
		}
	}
}

func TestAnIndexOutOfReachIsNotTheRequirementsFault(t *testing.T) {
	t.Parallel() // the installer retries with pauses
	tools := []string{"uv"}
	if needtest.IsLong() {
		tools = append(tools, "pip") // it retries for half a minute
	}
	for _, tool := range tools {
		b := openBackend(t, map[string]any{"prepare": map[string]any{"index_url": "http://" + gateway(t) + ":9/simple"}})
		if tool == "pip" {
			b.images.settings.uv = ""
		}
		if f := fails(t, b, executor.Spec{Code: "1", Requirements: "pyexec-probe"}); f.Code != executor.Unavailable || f.Field != "" {
			t.Errorf("%s: got %+v", tool, f)
		}
	}
}

func TestWhatMustBeBuiltIsRefusedUnlessAllowed(t *testing.T) {
	t.Parallel()
	house := newWheelhouse(t)
	house.addFile("pyexec-sdist", "pyexec_sdist-1.0.tar.gz", sdist(t, "pyexec_sdist", "1.0"))
	for _, allowed := range []bool{false, true} {
		b := openBackend(t, map[string]any{"prepare": map[string]any{"index_url": house.url(t), "allow_builds": allowed, "network": "bridge"}})
		forgetPrepared(t, b)
		spec := executor.Spec{Code: "import pyexec_sdist; print('built')", Requirements: "pyexec-sdist"}
		if !allowed {
			if f := fails(t, b, spec); f.Field != "requirements_txt" || f.Code != executor.Invalid {
				t.Errorf("got %+v", f)
			}
		} else if out, _ := succeeds(t, b, spec); out != "built\n" {
			t.Errorf("got %q", out)
		}
	}
}

// TestTheCodeOfABuildHasTheNetworkOfPrograms: an index at a private address is not reached from there either.
func TestTheCodeOfABuildHasTheNetworkOfPrograms(t *testing.T) {
	t.Parallel()
	house := newWheelhouse(t)
	house.probe()
	b := openBackend(t, map[string]any{"prepare": map[string]any{"index_url": house.url(t), "allow_builds": true}})
	needtest.Need(t, b.networks.iptables != nil, needtest.Root, "this process cannot change the firewall: "+b.networks.why)
	forgetPrepared(t, b)
	f := fails(t, b, executor.Spec{Code: "1", Requirements: "pyexec-probe"})
	if f.Code != executor.Unavailable || !strings.Contains(f.Message, "backends.docker.prepare.network") || house.requests.Load() != 0 {
		t.Errorf("%+v, the index was asked %d times", f, house.requests.Load())
	}
}

func TestAPreparationIsMadeOnceAndKept(t *testing.T) {
	t.Parallel()
	house := newWheelhouse(t)
	house.probe()
	more := map[string]any{"prepare": map[string]any{"index_url": house.url(t), "network": "bridge"}}
	b := openBackend(t, more)
	forgetPrepared(t, b)
	spec := executor.Spec{Code: "import pyexec_probe, os; print(pyexec_probe.__version__, os.path.exists('/opt/x'))", Requirements: "pyexec-probe", PreCommands: []string{"touch /opt/x # " + random()}}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if out, _ := succeeds(t, b, spec); out != "2.0 True\n" {
				t.Errorf("got %q", out)
			}
		})
	}
	wg.Wait()
	if n := b.images.cache.misses.Load(); n != 2 { // one image of the commands, one of the requirements
		t.Errorf("made %d images, want 2", n)
	}
	asked := house.requests.Load()
	// The requirements are spelled differently, and the plugin has started again.
	again := openBackend(t, more)
	spec.Requirements = "# the same\nPyExec.Probe\n"
	var j journal
	r, err := again.Run(t.Context(), job(spec), &j)
	if err != nil || r.Status != executor.StatusSucceeded || !slices.Equal(r.Requirements, []string{"pyexec-base==1.0", "pyexec-probe==2.0"}) {
		t.Errorf("%v %+v", err, r)
	}
	if again.images.cache.misses.Load() != 0 || house.requests.Load() != asked || len(j.progress) != 0 {
		t.Errorf("the image was prepared again: %v", j.progress)
	}
	if j.started == nil || !slices.Equal(j.started.Requirements, r.Requirements) {
		t.Errorf("started %+v", j.started)
	}
}

func TestACancelledPreparationLeavesNothing(t *testing.T) {
	t.Parallel()
	house := newWheelhouse(t)
	house.probe()
	house.hold = make(chan struct{})
	t.Cleanup(func() { close(house.hold) })
	b := openBackend(t, map[string]any{"prepare": map[string]any{"index_url": house.url(t), "network": "bridge"}})
	for name, spec := range map[string]executor.Spec{
		"requirements": {Code: "1", Requirements: "pyexec-probe"},
		"pre_commands": {Code: "1", PreCommands: []string{"trap '' TERM INT; sleep 1000 & setsid sleep 1000; # " + random()}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var once sync.Once
			j := journal{on: func(e executor.Event) error {
				if p, ok := e.Body.(executor.Progress); ok && (strings.HasPrefix(p.Message, "running") || strings.HasPrefix(p.Message, "installing")) {
					once.Do(func() {
						go func() {
							if name == "requirements" {
								<-house.asked
							}
							cancel(nil)
						}()
					})
				}
				return nil
			}}
			r, err := b.Run(ctx, job(spec), &j)
			if err != nil || r.Status != executor.StatusKilled {
				t.Errorf("%v %+v", err, r)
			}
			list, err := b.daemon.containers(t.Context(), map[string]string{labelInstance: b.place.Instance, labelKind: kindPrepare})
			if err != nil || len(list) != 0 {
				t.Errorf("containers are left: %v %v", list, err)
			}
		})
	}
}

func TestRealPackagesFromTheRealIndex(t *testing.T) {
	needtest.Long(t, "packages of an index that the test serves")
	t.Parallel()
	b := openBackend(t, nil)
	forgetPrepared(t, b)
	var j journal
	r, err := b.Run(t.Context(), job(executor.Spec{Code: "import requests; print(requests.__name__)", Requirements: "requests>=2.32"}), &j)
	if err == nil && r.Failure != nil && r.Failure.Code == executor.Unavailable && !needtest.Required("index") {
		t.Skipf("SKIPPED, the package index is out of reach: %s", r.Failure.Message)
	}
	if err != nil || r.Status != executor.StatusSucceeded || len(r.Requirements) < 5 {
		t.Errorf("%v %+v %+v", err, r, r.Failure)
	}
}
