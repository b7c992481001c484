package mcpfrontend

import (
	"strings"
	"testing"
)

func TestOnlyPackagesAreNamed(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"pip install numpy 2>/dev/null":                          "numpy",
		"pip install numpy>/dev/null":                            "numpy",
		"pip install numpy > log.txt":                            "numpy",
		"pip install numpy >log.txt pandas":                      "numpy", // what comes behind is rare, and not asked for
		"pip install numpy 1>&2":                                 "numpy",
		"pip install numpy &>/dev/null":                          "numpy",
		"pip install numpy <<< y":                                "numpy",
		"pip install numpy # for tables":                         "numpy",
		"(pip install numpy)":                                    "numpy",
		"x=$(pip install numpy pandas)":                          "numpy pandas",
		"pip install numpy | tail -1":                            "numpy",
		"pip install numpy && ls":                                "numpy",
		"pip install numpy&":                                     "numpy",
		"pip install 'numpy>=1.0'":                               "numpy>=1.0",
		`pip install "numpy >= 1.0" 'pandas<3'`:                  "numpy >= 1.0 pandas<3",
		`pip install 'tomli; python_version<"3.11"'`:             `tomli; python_version<"3.11"`,
		"pip install numpy>=1.0 pandas<3 2>&1":                   "numpy>=1.0 pandas<3",
		"pip install \\\n  numpy \\\n  pandas\nls":               "numpy pandas",
		`os.system("pip install 'numpy>=1.0' >/dev/null 2>&1")`:  "numpy>=1.0",
		"os.system('pip install numpy 2>/dev/null')":             "numpy",
		"pip install --timeout 1 -U numpy":                       "numpy",
		"pip install --retries 0 --proxy p --cert c --log l six": "six",
		"pip install --trusted-host h --root r --prefix p six":   "six",
		"pip install --platform any --abi none --implementation py --python-version 3.12 --only-binary all six":  "six",
		"pip install --cache-dir d --progress-bar off --exists-action i --use-feature f --config-settings a six": "six",
		"pip install --timeout=1 six":                               "six",
		"pip install ./a b.whl c.tar.gz -e d six":                   "six",
		"pip install --requirement=requirements.txt six":            "",
		`subprocess.run(["pip","install","--timeout","1","numpy"])`: "numpy",
	} {
		packages, calls := installs(code)
		if got := strings.Join(packages, " "); got != want || !calls {
			t.Errorf("%s: %q, want %q", code, got, want)
		}
	}
}
