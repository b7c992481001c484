package uvbackend

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// searchProgram prints every readable file below its arguments that contains the word.
const searchProgram = `
import os, sys
word = "pass" + "word-of-the-index"
for top in sys.argv[1:]:
    for folder, _, files in os.walk(top):
        for path in [os.path.join(folder, f) for f in files]:
            if word in path:
                print("named", path)
            try:
                with open(path, "rb") as f:
                    if word.encode() in f.read():
                        print("in", path)
            except OSError:
                pass
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in "environ", "cmdline":
        try:
            with open("/proc/%s/%s" % (pid, name), "rb") as f:
                if word.encode() in f.read():
                    print("of", pid, name)
        except OSError:
            pass
print("searched")
`

// TestProgramsFindNoCredentialsOfTheIndex searches the package cache and the environment, which may have the addresses of packages.
func TestProgramsFindNoCredentialsOfTheIndex(t *testing.T) {
	needUV(t)
	w := newWheelhouse(t)
	w.probe()
	w.password = "password-of-the-index"
	cache := filepath.Join(folder(t), "cache")
	b := openBackend(t, map[string]any{"cache_dir": cache, "index_url": strings.Replace(w.url(), "://", "://user:password-of-the-index@", 1)})
	for name, text := range map[string]string{"from the index": "pyexec-probe", "that does not exist": "pyexec-nothing"} {
		result, j := run(t, b, executor.Spec{Requirements: text, Code: searchProgram, Args: []string{cache}})
		if f := result.Failure; f != nil {
			if strings.Contains(f.Message, "password-of-the-index") || name == "from the index" {
				t.Errorf("%s: %s", name, f.Message)
			}
			continue
		}
		if got := j.text(executor.Stdout); os.Geteuid() == 0 && got != "searched\n" {
			t.Errorf("%s: a program finds credentials: %s", name, got)
		}
		for _, e := range j.events {
			if p, ok := e.Body.(executor.Progress); ok && strings.Contains(p.Message, "password-of-the-index") {
				t.Errorf("%s: progress says %s", name, p.Message)
			}
		}
		if strings.Contains(strings.Join(result.Requirements, " "), "password") {
			t.Errorf("%s: %q", name, result.Requirements)
		}
	}
}

// TestAWheelsAddressIsNotedWithoutCredentials installs a wheel by its address. Requirements may only have https addresses, so the
// test calls the builder, which does not check them.
func TestAWheelsAddressIsNotedWithoutCredentials(t *testing.T) {
	b, w := indexed(t, nil)
	server := httptest.NewServer(w.server.Config.Handler)
	t.Cleanup(server.Close)
	b.builder.fetches.Sources = append(b.builder.fetches.Sources, server.Listener.Addr().String())
	address := strings.Replace(server.URL, "://", "://user:password-of-the-index@", 1) + "/simple/pyexec-base/pyexec_base-1.0-py3-none-any.whl?token=password-of-the-index"
	i, _, err := b.choose(t.Context(), executor.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	w.password = "password-of-the-index"
	env, failure, err := b.builder.environment(t.Context(), want{i, []string{"pyexec-base @ " + address}}, func(p executor.Progress) {
		if strings.Contains(p.Message, "password-of-the-index") {
			t.Errorf("progress says %s", p.Message)
		}
	})
	if err != nil || failure != nil {
		t.Fatal(failure, err)
	}
	defer env.release()
	out, _ := succeeds(t, b, executor.Spec{Code: searchProgram, Args: []string{b.config.CacheDir}})
	if os.Geteuid() == 0 && out != "searched\n" {
		t.Errorf("a program finds credentials: %s", out)
	}
	origin, err := filepath.Glob(filepath.Join(env.dir, "lib", "*", "site-packages", "*", originName))
	if err != nil || len(origin) != 1 {
		t.Fatalf("%q, %v", origin, err)
	}
	raw, err := os.ReadFile(origin[0])
	if err != nil || strings.Contains(string(raw), "password-of-the-index") || !strings.Contains(string(raw), "pyexec_base-1.0-py3-none-any.whl") {
		t.Errorf("%s, %v", raw, err)
	}
}
