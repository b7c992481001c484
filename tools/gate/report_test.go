package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// suites are packages of a module that is made for the test.
var suites = map[string]string{
	"mixed": `
		func TestPasses(t *testing.T) { t.Log("quiet") }
		func TestFails(t *testing.T) { t.Run("half", func(t *testing.T) { t.Error("loud") }); t.Run("other", func(t *testing.T) {}) }
		func TestLacks(t *testing.T) { t.Skip("SKIPPED, docker is missing: it is not here") }
		func TestLong(t *testing.T) { t.Skip("LONG (make test-long): the gate has another") }`,
	"panics": `func TestPanics(t *testing.T) { t.Run("deep", func(t *testing.T) { panic("oh") }) }`,
	"exits":  `func TestExits(t *testing.T) { println("before"); os.Exit(0) }`,
	"main":   `func TestFine(t *testing.T) {}; func TestMain(m *testing.M) { m.Run(); println("leaked"); os.Exit(7) }`,
	"broken": `func TestBroken(t *testing.T) { nothing() }`,
	"green":  `func TestGreen(t *testing.T) {}`,
}

func TestAReportHasEveryFailure(t *testing.T) {
	dir := t.TempDir()
	for name, text := range suites {
		text = "package p\n\nimport (\n\"os\"\n\"testing\"\n)\n\nvar _ = os.Exit\n" + text
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "p_test.go"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module m\n\ngo 1.26\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "test", "-json", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	stdout, _ := cmd.Output()
	var raw bytes.Buffer
	r, err := readReport(bytes.NewReader(stdout), &raw)
	if err != nil {
		t.Fatal(err)
	}
	var failed []string
	for _, f := range leaves(r.failed) {
		failed = append(failed, f.String())
	}
	slices.Sort(failed)
	if got, want := strings.Join(failed, "\n"), "m/broken\nm/exits TestExits\nm/main\nm/mixed TestFails/half\nm/panics TestPanics/deep"; got != want {
		t.Errorf("failed:\n%s\nwant:\n%s", got, want)
	}
	if r.skipped != 1 || r.long != 1 || r.tests != 6 {
		t.Errorf("%d skipped, %d long, %d tests; want 1, 1, 6", r.skipped, r.long, r.tests)
	}
	for f, why := range map[Failure]string{{"m/mixed", "TestFails/half"}: "loud", {Package: "m/main"}: "FAIL\tm/main"} {
		if !strings.Contains(r.why[f], why) {
			t.Errorf("why %s failed: %q, want %q", f, r.why[f], why)
		}
	}
	printed := r.printed.String()
	for _, text := range []string{"loud", "panic: oh", "before", "leaked", "undefined: nothing", "ok  \tm/green", "1 × SKIPPED, docker is missing: it is not here"} {
		if !strings.Contains(printed, text) {
			t.Errorf("%q is missing", text)
		}
	}
	for _, text := range []string{"quiet", "LONG"} {
		if strings.Contains(printed, text) {
			t.Errorf("%q is printed", text)
		}
	}
	if t.Failed() {
		t.Log(printed)
	}
	if !bytes.Equal(raw.Bytes(), stdout) {
		t.Error("the copy is no copy")
	}
}

// What a test prints of another binary's coverage is not its package's, whatever the go command makes of it.
func TestCoverageIsThePackagesOwn(t *testing.T) {
	var raw bytes.Buffer
	r, err := readReport(strings.NewReader(`{"Action":"output","Package":"m","Test":"TestA","Output":"coverage: 10.0% of statements\n"}
{"Action":"pass","Package":"m","Test":"TestA"}
{"Action":"output","Package":"m","Output":"PASS\n"}
{"Action":"output","Package":"m","Output":"coverage: 90.0% of statements\n"}
{"Action":"output","Package":"m","Output":"ok  \tm\t1.0s\tcoverage: 10.0% of statements\n"}
{"Action":"pass","Package":"m"}
{"Action":"output","Package":"n","Output":"\tn\t\tcoverage: 0.0% of statements\n"}
{"Action":"pass","Package":"n"}
`), &raw)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.printed.String(), "ok  \tm\t1.0s\tcoverage: 90.0% of statements\n\tn\t\tcoverage: 0.0% of statements\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
