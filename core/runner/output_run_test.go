//go:build linux

package runner

import "testing"

func TestAProgramMayCloseItsOutputAndGoOn(t *testing.T) {
	t.Parallel()
	r := startRunner(t, testConfig(t))
	res, rec := r.run(t, shell("echo a; exec >&- 2>&-; sleep 0.2; exit 3"), RunInput{})
	if res.ExitCode == nil || *res.ExitCode != 3 || rec.stdout() != "a\n" {
		t.Errorf("%+v, stdout %q", res, rec.stdout())
	}
}
