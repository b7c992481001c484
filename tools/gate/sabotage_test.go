package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestASabotagedTreeIsRed runs real parts of the gate, of one test each, in a copy of the repository: first as it is, so that every cache
// has the result, then with something broken that is outside of the module of the tests.
func TestASabotagedTreeIsRed(t *testing.T) {
	if os.Getenv("PYEXEC_GATE_SABOTAGE") != "1" {
		t.Skip("LONG (make test): the part sabotage of the gate runs it, after the build")
	}
	t.Setenv("GOWORK", "") // the parts are in the workspace
	for name, c := range map[string]struct {
		part, pkg, test string
		serve           string // a part that serves the part
		sabotage        func(t *testing.T, dir string, r *runner)
	}{
		"the product is /bin/false": {part: "end-to-end", pkg: ".", test: "TestCLIStdinIsForTheProgramOnlyWhenAsked", sabotage: func(t *testing.T, dir string, _ *runner) {
			copyFile(t, "/bin/false", filepath.Join(dir, "bin/python-executor"))
		}},
		"the contract lacks a rule": {part: "saboteurs", pkg: "./executor/backendtest", test: "TestTheContractAndTheSuitesHaveTheSameRules", sabotage: func(t *testing.T, dir string, _ *runner) {
			path := filepath.Join(dir, "docs/contract.md")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			whole := bytes.Replace(text, []byte("| BE-15 |"), []byte("| BE-999 |"), 1)
			if bytes.Equal(whole, text) {
				t.Fatal("the contract has no BE-15")
			}
			if err := os.WriteFile(path, whole, 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		"the Docker daemon has stopped": {part: "backend-docker", pkg: ".", test: "TestTheDoctorLooksAtTheDaemon", serve: "daemons", sabotage: func(t *testing.T, _ string, r *runner) {
			if err := r.endServices(); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyRepository(t)
			var out bytes.Buffer
			r := &runner{root: dir, logs: t.TempDir(), out: &out}
			t.Cleanup(func() { _ = r.endServices() })
			if c.serve != "" {
				t.Setenv("PYEXEC_TEST_DOCKER", "") // not the one of the gate
				p := partNamed(t, c.serve)
				p.Env = append(p.Env, "DAEMONS=-docker")
				if r.run(t.Context(), p) != Passed {
					t.Fatal(out.String())
				}
				if r.served == nil {
					if strings.Contains(os.Getenv("PYEXEC_TEST_REQUIRE"), "docker") {
						t.Fatalf("no private Docker daemon:\n%s", &out)
					}
					t.Skip("SKIPPED, docker is missing: no private daemon")
				}
			}
			p := partNamed(t, c.part)
			p.Test = append(flagsOf(p.Test), "-failfast", "-run=^"+c.test+"$", c.pkg)
			p.Except = nil
			if r.run(t.Context(), p) != Passed || r.results[len(r.results)-1].Report.tests != 1 {
				t.Fatalf("before the sabotage:\n%s", &out)
			}
			c.sabotage(t, dir, r)
			out.Reset()
			if r.run(t.Context(), p) != Failed {
				t.Errorf("the part is green:\n%s", &out)
			}
			if failed := r.results[len(r.results)-1].Report.failed; !slices.ContainsFunc(failed, func(f Failure) bool { return f.Test == c.test }) {
				t.Errorf("the test has not failed, but %v:\n%s", failed, &out)
			}
		})
	}
}

func partNamed(t *testing.T, name string) Part {
	t.Helper()
	i := slices.IndexFunc(parts, func(p Part) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("no part %s", name)
	}
	return parts[i]
}

// copyRepository copies the files of the repository, and what make build has made.
func copyRepository(t *testing.T) string {
	t.Helper()
	from, err := root()
	if err != nil {
		t.Fatal(err)
	}
	to, err := os.MkdirTemp("", "gate-sabotage-") // other uids pass through it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(to) })
	if err := os.Chmod(to, 0o755); err != nil { //nolint:gosec // see above
		t.Fatal(err)
	}
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = from
	names, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00")+"\x00bin/python-executor\x00core/runner/binary/runner.bin", "\x00") {
		path := filepath.Join(from, name)
		info, err := os.Lstat(path)
		if os.IsNotExist(err) {
			continue // removed, and not committed
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755); err != nil { //nolint:gosec // see above
			t.Fatal(err)
		}
		if info.Mode().Type() == fs.ModeSymlink {
			target, err := os.Readlink(path)
			if err == nil {
				err = os.Symlink(target, filepath.Join(to, name))
			}
			if err != nil {
				t.Fatal(err)
			}
			continue
		}
		copyFile(t, path, filepath.Join(to, name))
	}
	return to
}

// copyFile replaces a file by a copy of another one.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Remove(to); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	info, err := os.Stat(from)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, info.Mode().Perm())
	}
	if err != nil {
		t.Fatal(err)
	}
}
