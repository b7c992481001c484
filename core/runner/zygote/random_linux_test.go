package zygote

import (
	"os"
	"path/filepath"
	"testing"
)

// A generator of random numbers that was filled before the fork would give the same numbers to all programs. The module numpy.random here
// has one generator that is filled when it is imported, as that of numpy, and does nothing at a fork by itself.
func TestProgramsGetRandomNumbersOfTheirOwn(t *testing.T) {
	t.Parallel()
	cfg := usual(t.TempDir())
	packages := t.TempDir()
	userPackages(t, packages, "numpy/__init__.py", "")
	userPackages(t, packages, "numpy/random.py", "import _random\nfilled = _random.Random()\nseed, random = filled.seed, filled.random")
	cfg.Env, cfg.Preimport = append(cfg.Env, userBase(packages)), []string{"random", "numpy.random"}
	z := start(t, cfg)
	must(t, os.RemoveAll(filepath.Join(packages, ".local"))) // a copy would refuse to begin
	for _, module := range cfg.Preimport {
		text := "import " + module + "\nprint(" + module + ".random())"
		if one, other := run(t, z, text, nil), run(t, z, text, nil); one == other {
			t.Errorf("%s: two programs got the number %s", module, one)
		}
	}
}
