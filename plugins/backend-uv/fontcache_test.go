package uvbackend

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// looksForFonts is a font_manager that does with its file what that of matplotlib does. made says how its list came to be.
const looksForFonts = `
import json, os, sys
folder = os.environ.get("MPLCONFIGDIR") or os.path.expanduser("~/.cache/matplotlib")
os.makedirs(folder, exist_ok=True)
assert os.access(folder, os.W_OK)
path = os.path.join(folder, "fontlist-v3.11.0.json")
try:
    with open(path) as f: fonts, made = json.load(f), "before"
except FileNotFoundError:
    fonts, made = ["DejaVu"], "now"
    with open(path, "w") as f: json.dump(fonts, f)
`

// withFonts returns a backend in boxes, and its index with a matplotlib whose font_manager is code.
func withFonts(t *testing.T, code string) (*Backend, *wheelhouse) {
	t.Helper()
	b, w := indexed(t, nil)
	needtest.Need(t, b.how.Box, needtest.Box, "programs run in boxes")
	w.add("matplotlib", "3.9", map[string]string{"matplotlib/__init__.py": "", "matplotlib/font_manager.py": code})
	return b, w
}

const tellsFonts = "from matplotlib.font_manager import *; print(made, fonts, path.startswith('/work/'))"

func TestAnEnvironmentBringsItsListOfFonts(t *testing.T) {
	b, _ := withFonts(t, looksForFonts)
	spec := executor.Spec{Code: tellsFonts, Requirements: "matplotlib"}
	for range 2 {
		if out, _ := succeeds(t, b, spec); out != "before ['DejaVu'] False\n" {
			t.Errorf("got %q", out)
		}
	}
	spec.Env = map[string]string{"MPLCONFIGDIR": "/work/mine"}
	if out, _ := succeeds(t, b, spec); out != "now ['DejaVu'] True\n" {
		t.Errorf("with a folder of its own: %q", out)
	}
	open(t, b, "ctx-1", executor.Spec{Requirements: "matplotlib"})
	if got, _, _ := cell(t, b, "ctx-1", tellsFonts); got != "before ['DejaVu'] False\n" {
		t.Errorf("in a session: %q", got)
	}
}

func TestAProgramCannotChangeTheListOfFonts(t *testing.T) {
	b, _ := withFonts(t, looksForFonts)
	spec := executor.Spec{Requirements: "matplotlib", Code: `
import os
from matplotlib.font_manager import path
for how in (lambda: open(path, "w"), lambda: os.chmod(path, 0o666), lambda: os.unlink(os.path.realpath(path)), lambda: open(os.path.dirname(os.path.realpath(path)) + "/x", "w")):
    try: how(); print("changed")
    except OSError: pass
os.unlink(path)
with open(path, "w") as f: f.write('["mine"]') # its own folder
print("done")
`}
	if out, _ := succeeds(t, b, spec); out != "done\n" {
		t.Errorf("got %q", out)
	}
	if out, _ := succeeds(t, b, executor.Spec{Code: tellsFonts, Requirements: "matplotlib"}); out != "before ['DejaVu'] False\n" {
		t.Errorf("the next program: %q", out)
	}
}

// The list is made by code of packages. It runs where it changes nothing, and what it leaves is not believed.
func TestTheListOfFontsChangesNothingElse(t *testing.T) {
	secret := filepath.Join(folder(t), "secret")
	if err := os.WriteFile(secret, []byte(`"secret"`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ code, want string }{
		"it fails": {"import sys\nmade, fonts, path = 'failed', [], '/'\nif sys.flags.isolated: sys.exit(3)", "failed [] False\n"},
		"it writes elsewhere": {`
import os, sys
home = os.path.dirname(os.path.abspath(__file__))
top = home.split("/env/")[0]
if sys.flags.isolated:
    for folder in (home, os.path.join(home, "..", ".."), top, os.path.join(top, "home"), "/", os.path.dirname(os.path.dirname(top)) + "/uv-cache"):
        try: open(os.path.join(folder, "left.py"), "w")
        except OSError: pass
    import socket
    if len(socket.if_nameindex()) > 1: open(os.path.join(os.environ["MPLCONFIGDIR"], "fontlist-v1.json"), "w").write('["network"]')
made, fonts, path = "left" if os.path.exists(home + "/left.py") else "nothing", [n for n in os.environ if n == "MPLCONFIGDIR"], "/"
`, "nothing [] False\n"},
		"it leaves a link":      {"import os, sys\nif sys.flags.isolated: os.symlink('" + secret + "', os.environ['MPLCONFIGDIR'] + '/fontlist-v1.json')\nmade, fonts, path = os.environ.get('MPLCONFIGDIR'), [], '/'", "None [] False\n"},
		"it leaves no JSON":     {"import os, sys\nif sys.flags.isolated: open(os.environ['MPLCONFIGDIR'] + '/fontlist-v1.json', 'w').write('{')\nmade, fonts, path = os.environ.get('MPLCONFIGDIR'), [], '/'", "None [] False\n"},
		"it leaves other files": {"import os, sys\nif sys.flags.isolated: open(os.environ['MPLCONFIGDIR'] + '/matplotlibrc', 'w').write('{}')\nmade, fonts, path = os.environ.get('MPLCONFIGDIR'), [], '/'", "None [] False\n"},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := withFonts(t, c.code)
			if out, _ := succeeds(t, b, executor.Spec{Code: tellsFonts, Requirements: "matplotlib"}); out != c.want {
				t.Errorf("got %q, want %q", out, c.want)
			}
			left, err := filepath.Glob(filepath.Join(b.config.CacheDir, "*", "left.py"))
			if err != nil || len(left) > 0 {
				t.Errorf("%v, %q", err, left)
			}
			if out, _ := succeeds(t, b, executor.Spec{Code: probeProgram, Requirements: "pyexec-probe==1.2.3"}); !strings.HasPrefix(out, "1.2.3") {
				t.Errorf("another environment: %q", out)
			}
		})
	}
}
