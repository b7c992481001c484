package dockerbackend

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/client"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

func TestRequirementsAreThereWithoutANetwork(t *testing.T) {
	house := newWheelhouse(t)
	house.probe()
	for name, more := range map[string]map[string]any{
		"from an index":       {"index_url": house.url(t)},
		"from a folder":       {"index_url": newWheelhouse(t).url(t), "find_links": house.folder(t)},
		"from an extra index": {"index_url": house.url(t) + "/nothing-here", "extra_index_urls": []string{house.url(t)}},
	} {
		t.Run(name, func(t *testing.T) {
			b := backend(t, map[string]any{"prepare": more})
			forgetPrepared(t, b)
			out, r := succeeds(t, b, executor.Spec{
				Code:         "import pyexec_probe, pyexec_base, sys; print(pyexec_probe.__version__, pyexec_base.__version__, sys.prefix)\nimport socket\ntry:\n  socket.create_connection(('1.1.1.1', 53), 1)\nexcept OSError as e: print('no network')",
				Requirements: "pyexec_probe < 2   # a comment\n",
			})
			if out != "1.2.3 1.0 "+preparedEnv+"\nno network\n" {
				t.Errorf("got %q", out)
			}
			if want := []string{"pyexec-base==1.0", "pyexec-probe==1.2.3"}; !slices.Equal(r.Requirements, want) {
				t.Errorf("resolved %v, want %v", r.Requirements, want)
			}
			if !strings.HasPrefix(r.ImageDigest, "sha256:") || r.PythonVersion == "" {
				t.Errorf("digest %q, python %q", r.ImageDigest, r.PythonVersion)
			}
		})
	}
}

func TestRequirementsInstalledWithPipAreTheSame(t *testing.T) {
	house := newWheelhouse(t)
	house.probe()
	b := backend(t, map[string]any{"prepare": map[string]any{"index_url": house.url(t)}})
	b.images.settings.uv = "" // as on a host without
	forgetPrepared(t, b)
	out, r := succeeds(t, b, executor.Spec{Code: "import pyexec_probe; print(pyexec_probe.__version__)", Requirements: "pyexec-probe"})
	if want := []string{"pyexec-base==1.0", "pyexec-probe==2.0"}; out != "2.0\n" || !slices.Equal(r.Requirements, want) {
		t.Errorf("%q, %v", out, r.Requirements)
	}
}

func TestAnImageWithoutShellAndPipNeedsAUVThatRunsInIt(t *testing.T) {
	house := newWheelhouse(t)
	house.probe()
	b := backend(t, map[string]any{"prepare": map[string]any{"index_url": house.url(t)}})
	forgetPrepared(t, b)
	spec := executor.Spec{Image: dockertest.Bare(t), Code: "import pyexec_probe; print(pyexec_probe.__version__)", Requirements: "pyexec-probe==1.2.3"}
	// A uv that is linked with libraries of this host finds them in few images; a static one needs nothing.
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
	b := backend(t, nil)
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

func TestWhatAPreparationFailsWith(t *testing.T) {
	house := newWheelhouse(t)
	house.probe()
	b := backend(t, map[string]any{"prepare": map[string]any{"index_url": house.url(t), "timeout_seconds": 20, "memory_mb": 96, "disk_mb": 64}})
	before := preparedImages(t, b)
	for name, c := range map[string]struct {
		spec executor.Spec
		want executor.Failure
	}{
		"a command that fails": {
			executor.Spec{PreCommands: []string{"true", "echo out; echo oh no >&2; exit 7", "true"}},
			executor.Failure{Code: executor.Invalid, Field: "pre_commands", Message: "pre_commands[1] \"echo out; echo oh no >&2; exit 7\" ended with exit code 7:\nout\noh no"},
		},
		"a command that does not exist": {
			executor.Spec{PreCommands: []string{"frobnicate"}}, executor.Failure{Code: executor.Invalid, Field: "pre_commands", Message: "frobnicate: not found"},
		},
		"a command with a quote": {
			executor.Spec{PreCommands: []string{"echo 'it''s' \"here\" >&2; false"}}, executor.Failure{Code: executor.Invalid, Field: "pre_commands", Message: "its here"},
		},
		"an image without a shell": {
			executor.Spec{Image: dockertest.Bare(t), PreCommands: []string{"true"}}, executor.Failure{Code: executor.Invalid, Field: "pre_commands", Message: "no /bin/sh"},
		},
		"a command that kills its shell": {
			executor.Spec{PreCommands: []string{"kill -9 $$"}}, executor.Failure{Code: executor.Invalid, Field: "pre_commands", Message: "exit code 137"},
		},
		"a command that never ends": {
			executor.Spec{PreCommands: []string{"sleep 1000"}}, executor.Failure{Code: executor.Exhausted, Message: "within 20s"},
		},
		"a command that wants much memory": {
			executor.Spec{PreCommands: []string{"exec python3 -c 'x = bytearray(500 << 20)'"}}, executor.Failure{Code: executor.Exhausted, Field: "pre_commands", Message: "memory"},
		},
		"a command that writes much": {
			executor.Spec{PreCommands: []string{"head -c 200000000 /dev/zero >/big"}}, executor.Failure{Code: executor.Exhausted, Field: "pre_commands", Message: "disk_mb"},
		},
		"no such version": {
			executor.Spec{Requirements: "pyexec-probe==99"}, executor.Failure{Code: executor.Invalid, Field: "requirements_txt", Message: "pyexec-probe==99"},
		},
		"no such package": {
			executor.Spec{Requirements: "pyexec-nothing"}, executor.Failure{Code: executor.Invalid, Field: "requirements_txt", Message: "pyexec-nothing"},
		},
		"an option": {
			executor.Spec{Requirements: "--index-url https://example.org\nx"}, executor.Failure{Code: executor.Invalid, Field: "requirements_txt", Message: "options are not allowed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.spec.Code = "print('ran')"
			f := fails(t, b, c.spec)
			if f.Code != c.want.Code || f.Field != c.want.Field || f.Phase != executor.PhasePrepare || !strings.Contains(f.Message, c.want.Message) {
				t.Errorf("got %+v", f)
			}
		})
	}
	t.Cleanup(func() {
		if after := preparedImages(t, b); len(after) > len(before) {
			t.Errorf("%d images were made of nothing", len(after)-len(before))
		}
	})
}

func TestAnIndexOutOfReachIsNotTheRequirementsFault(t *testing.T) {
	b := backend(t, map[string]any{"prepare": map[string]any{"index_url": "http://" + gateway(t) + ":9/simple"}})
	if f := fails(t, b, executor.Spec{Code: "1", Requirements: "pyexec-probe"}); f.Code != executor.Unavailable || f.Field != "" {
		t.Errorf("got %+v", f)
	}
}

func TestWhatMustBeBuiltIsRefusedUnlessAllowed(t *testing.T) {
	house := newWheelhouse(t)
	house.addFile("pyexec-sdist", "pyexec_sdist-1.0.tar.gz", sdist(t, "pyexec_sdist", "1.0"))
	for _, allowed := range []bool{false, true} {
		b := backend(t, map[string]any{"prepare": map[string]any{"index_url": house.url(t), "allow_builds": allowed}})
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

func TestAPreparationIsMadeOnceAndKept(t *testing.T) {
	house := newWheelhouse(t)
	house.probe()
	more := map[string]any{"prepare": map[string]any{"index_url": house.url(t)}}
	b := backend(t, more)
	forgetPrepared(t, b)
	spec := executor.Spec{Code: "import pyexec_probe, os; print(pyexec_probe.__version__, os.path.exists('/opt/x'))", Requirements: "pyexec-probe", PreCommands: []string{"touch /opt/x # " + random()}}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if out, _ := succeeds(t, b, spec); out != "2.0 True\n" {
				t.Errorf("got %q", out)
			}
		})
	}
	wg.Wait()
	if n := b.images.cache.misses.Load(); n != 2 { // the commands, and the requirements
		t.Errorf("made %d images", n)
	}
	asked := house.requests.Load()
	// Another spelling, and another life of the plugin.
	again := backend(t, more)
	spec.Requirements = "# the same\nPyExec.Probe\n"
	var j journal
	r, err := again.Run(t.Context(), job(spec), &j)
	if err != nil || r.Status != executor.StatusSucceeded || !slices.Equal(r.Requirements, []string{"pyexec-base==1.0", "pyexec-probe==2.0"}) {
		t.Errorf("%v %+v", err, r)
	}
	if again.images.cache.misses.Load() != 0 || house.requests.Load() != asked || len(j.progress) != 0 {
		t.Errorf("it was made again: %v", j.progress)
	}
	if j.started == nil || !slices.Equal(j.started.Requirements, r.Requirements) {
		t.Errorf("started %+v", j.started)
	}
}

func TestACancelledPreparationLeavesNothing(t *testing.T) {
	house := newWheelhouse(t)
	house.probe()
	house.hold = make(chan struct{})
	t.Cleanup(func() { close(house.hold) })
	b := backend(t, map[string]any{"prepare": map[string]any{"index_url": house.url(t)}})
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
				t.Errorf("left: %v %v", list, err)
			}
		})
	}
}

func TestNoSecretOfAPreparationIsInItsImage(t *testing.T) {
	house := newWheelhouse(t)
	house.probe()
	secret := random()
	index := strings.Replace(house.url(t), "http://", "http://someone:"+secret+"@", 1)
	proxy := "http://other:" + secret + "@" + strings.TrimPrefix(house.server.URL, "http://")
	b := backend(t, map[string]any{"prepare": map[string]any{"index_url": index}})
	b.images.settings.proxies = map[string]string{"FTP_PROXY": proxy}
	forgetPrepared(t, b)
	before := preparedImages(t, b)
	out, _ := succeeds(t, b, executor.Spec{
		Code:         "import os, subprocess; print(subprocess.run(['grep', '-rl', '" + secret + "', '/opt', '/root', '/etc', '/tmp', '/var'], capture_output=True, text=True).stdout, [k for k in os.environ if '" + secret + "' in os.environ[k]])",
		PreCommands:  []string{"test -n \"$FTP_PROXY\" # " + random()},
		Requirements: "pyexec-probe",
	})
	if out != " []\n" {
		t.Errorf("the program sees %q", out)
	}
	for _, id := range preparedImages(t, b) {
		if slices.Contains(before, id) {
			continue
		}
		raw := inspectRaw(t, b, id)
		if strings.Contains(raw, secret) {
			t.Errorf("in the image's settings: %s", raw)
		}
	}
}

func TestTheCacheKeepsWhatWasUsedLast(t *testing.T) {
	b := backend(t, map[string]any{"prepare": map[string]any{"cache_bytes": 5 << 20}})
	forgetPrepared(t, b)
	now := time.Now()
	clock := func() time.Time { return now }
	b.images.cache.now = clock
	base, err := b.images.ensure(t.Context(), b.config.DefaultImage, func(executor.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	nobody := func(executor.Progress) {}
	var made []imageInfo
	for range 3 {
		info, failure, err := b.images.prepare(t.Context(), base, prepareSpec{PreCommands: []string{"head -c 2000000 /dev/urandom >/opt/x # " + random()}}, nobody)
		if failure != nil || err != nil {
			t.Fatal(failure, err)
		}
		made = append(made, info)
	}
	there := func(n int) bool {
		_, err := b.daemon.image(t.Context(), made[n].ID)
		return err == nil
	}
	b.images.prepares.wg.Wait()
	if !there(0) || !there(1) || !there(2) {
		t.Error("an image was evicted that somebody may be about to use")
	}
	// Others may have images in this daemon: only ours are evicted here.
	list, total, err := b.images.cache.entries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own := func(e preparedEntry) bool {
		return slices.ContainsFunc(made, func(i imageInfo) bool { return i.ID == e.id })
	}
	for _, e := range list {
		if !own(e) {
			total -= e.bytes
		}
	}
	if total < 6_000_000 || total > 7_000_000 {
		t.Errorf("three images of 2 MB take %d", total)
	}
	now = now.Add(time.Hour)
	for _, e := range list {
		if e.id == made[0].ID && !b.images.cache.remove(t.Context(), e) {
			t.Error("an image that nobody needs stays")
		}
	}
	if there(0) || !there(1) {
		t.Error("the wrong one was evicted")
	}
}

func TestTheLeastRecentlyUsedGoesFirst(t *testing.T) {
	c := newPreparedCache(nil, 0, nil)
	at := time.Now()
	list := []preparedEntry{{key: "b", used: at.Add(time.Second)}, {key: "a", used: at}, {key: "c", used: at.Add(time.Minute)}}
	c.order(list)
	if list[0].key != "a" || list[1].key != "b" || list[2].key != "c" {
		t.Errorf("got %v", list)
	}
}

func TestRealPackagesFromTheRealIndex(t *testing.T) {
	b := backend(t, nil)
	forgetPrepared(t, b)
	var j journal
	r, err := b.Run(t.Context(), job(executor.Spec{Code: "import requests; print(requests.__name__)", Requirements: "requests>=2.32"}), &j)
	if err == nil && r.Failure != nil && r.Failure.Code == executor.Unavailable && !required("index") {
		t.Skipf("SKIPPED, the package index is out of reach: %s", r.Failure.Message)
	}
	if err != nil || r.Status != executor.StatusSucceeded || len(r.Requirements) < 5 {
		t.Errorf("%v %+v %+v", err, r, r.Failure)
	}
}

// isStatic reports whether a program needs no libraries.
func isStatic(t testing.TB, path string) bool {
	t.Helper()
	if path == "" {
		return false
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// required reports whether CI insists on a thing.
func required(what string) bool {
	return slices.Contains(strings.Split(os.Getenv("PYEXEC_TEST_REQUIRE"), ","), what)
}

// fails runs spec, whose preparation must fail.
func fails(t testing.TB, b executor.Backend, spec executor.Spec) executor.Failure {
	t.Helper()
	var j journal
	r, err := b.Run(t.Context(), job(spec), &j)
	if err != nil || r.Status != executor.StatusFailed || r.Failure == nil {
		t.Fatalf("%v %+v; stdout %q", err, r, j.stdout.String())
	}
	if j.started != nil {
		t.Error("the program was started")
	}
	return *r.Failure
}

// inspectRaw is all that the daemon tells about an image, its history included.
func inspectRaw(t testing.TB, b *Backend, id string) string {
	t.Helper()
	var raw bytes.Buffer
	if _, err := b.daemon.api.ImageInspect(t.Context(), id, client.ImageInspectWithRawResponse(&raw)); err != nil {
		t.Fatal(err)
	}
	history, err := b.daemon.api.ImageHistory(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return raw.String() + fmt.Sprint(history)
}

// sdist is a source archive that setuptools builds.
func sdist(t testing.TB, module, version string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range map[string]string{
		"PKG-INFO":       "Metadata-Version: 2.1\nName: " + module + "\nVersion: " + version + "\n",
		"pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n",
		"backend.py": "import os, zipfile\ndef build_wheel(out, *a, **k):\n  name = '" + module + "-" + version + "-py3-none-any.whl'\n" +
			"  z = zipfile.ZipFile(os.path.join(out, name), 'w')\n  info = '" + module + "-" + version + ".dist-info/'\n" +
			"  files = {'" + module + ".py': '', info + 'METADATA': 'Metadata-Version: 2.1\\nName: " + module + "\\nVersion: " + version + "\\n', info + 'WHEEL': 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n'}\n" +
			"  for n, c in files.items(): z.writestr(n, c)\n  z.writestr(info + 'RECORD', ''.join(n + ',,\\n' for n in files))\n  z.close()\n  return name\n",
	} {
		if err := w.WriteHeader(&tar.Header{Name: module + "-" + version + "/" + name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// forgetPrepared removes, after t, the images that b's preparations have made.
func forgetPrepared(t testing.TB, b *Backend) {
	t.Helper()
	before := preparedImages(t, b)
	t.Cleanup(func() {
		for range 2 { // the second time without what others were made of it
			for _, id := range preparedImages(t, b) {
				if !slices.Contains(before, id) {
					ctx, cancel := cleanUp(context.Background())
					_ = b.daemon.removeImage(ctx, id) // another test may still use it
					cancel()
				}
			}
		}
	})
}

func preparedImages(t testing.TB, b *Backend) []string {
	t.Helper()
	ctx, cancel := cleanUp(context.Background())
	defer cancel()
	ids, err := b.daemon.images(ctx, map[string]string{labelPrepared: ""})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}
