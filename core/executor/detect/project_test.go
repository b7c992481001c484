package detect

import (
	"strings"
	"testing"
	"testing/fstest"
)

const someLock = `
version = 1
requires-python = ">=3.11"

[[package]]
name = "app"
version = "0.1.0"
source = { virtual = "." }
dependencies = [
    { name = "click" },
    { name = "requests", extra = ["socks"] },
    { name = "numpy", version = "1.26.4", source = { registry = "r" }, marker = "python_full_version < '3.12'" },
    { name = "numpy", version = "2.1.0", source = { registry = "r" }, marker = "python_full_version >= '3.12'" },
]

[package.dev-dependencies]
dev = [{ name = "pytest" }]

[[package]]
name = "click"
version = "8.1.7"
source = { registry = "r" }
dependencies = [{ name = "colorama", marker = "sys_platform == 'win32'" }]

[[package]]
name = "colorama"
version = "0.4.6"
source = { registry = "r" }
dependencies = [{ name = "winthing" }]

[[package]]
name = "winthing"
version = "1"
source = { registry = "r" }

[[package]]
name = "numpy"
version = "1.26.4"
source = { registry = "r" }

[[package]]
name = "numpy"
version = "2.1.0"
source = { registry = "r" }

[[package]]
name = "pytest"
version = "8"
source = { registry = "r" }

[[package]]
name = "requests"
version = "2.32.3"
source = { registry = "r" }
dependencies = [{ name = "click" }]

[package.optional-dependencies]
socks = [{ name = "requests", extra = ["socks"] }, { name = "pysocks" }]

[[package]]
name = "pysocks"
version = "1.7.1"
source = { registry = "r" }
`

func TestProjectReadsTheLockFirst(t *testing.T) {
	t.Parallel()
	d, err := Project(fstest.MapFS{
		"uv.lock":        {Data: []byte(someLock)},
		"pyproject.toml": {Data: []byte("[project]\ndependencies = [\"other\"]\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"click==8.1.7",
		"colorama==0.4.6 ; sys_platform == 'win32'",
		"numpy==1.26.4 ; python_full_version < '3.12'",
		"numpy==2.1.0 ; python_full_version >= '3.12'",
		"pysocks==1.7.1",
		"requests==2.32.3",
		"winthing==1 ; sys_platform == 'win32'",
	}, "\n")
	if d.Requirements != want || !d.Locked {
		t.Errorf("got\n%s", d.Requirements)
	}
}

func TestProjectReadsPyprojectWithoutALock(t *testing.T) {
	t.Parallel()
	d, err := Project(fstest.MapFS{"pyproject.toml": {Data: []byte("[project]\ndependencies = [\"a>=1\", \"b\"]\n")}})
	if err != nil || d.Requirements != "a>=1\nb" || d.Locked {
		t.Errorf("got %+v, %v", d, err)
	}
	if d, err := Project(fstest.MapFS{}); err != nil || d.Requirements != "" {
		t.Errorf("of an empty folder: %+v, %v", d, err)
	}
}

func TestProjectSaysWhatCannotBeInstalled(t *testing.T) {
	t.Parallel()
	const head = "version = 1\n[[package]]\nname = \"app\"\nversion = \"1\"\nsource = { editable = \".\" }\n"
	for name, test := range map[string]struct{ lock, says string }{
		"no toml":        {"version = ", "uv.lock: "},
		"a later form":   {"version = 2\n", "unknown version 2"},
		"no project":     {"version = 1\n", "the project itself"},
		"a local folder": {head + "dependencies = [{ name = \"lib\" }]\n[[package]]\nname = \"lib\"\nversion = \"1\"\nsource = { directory = \"../lib\" }\n", "lib comes from a folder"},
		"a gap":          {head + "dependencies = [{ name = \"lib\" }]\n", "lib is needed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Project(fstest.MapFS{"uv.lock": {Data: []byte(test.lock)}})
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want something about %q", err, test.says)
			}
		})
	}
	if _, err := Project(fstest.MapFS{"pyproject.toml": {Data: []byte("[project]\ndependencies = [\"a\\n--index-url x\"]\n")}}); err == nil {
		t.Error("a dependency of two lines was taken")
	}
}

func TestProjectEndsOnCyclesOfConditions(t *testing.T) {
	t.Parallel()
	lock := "version = 1\n[[package]]\nname = \"app\"\nversion = \"1\"\nsource = { virtual = \".\" }\ndependencies = [{ name = \"a\", marker = \"m\" }]\n"
	for _, pair := range [][2]string{{"a", "b"}, {"b", "a"}} {
		lock += "[[package]]\nname = \"" + pair[0] + "\"\nversion = \"1\"\nsource = { registry = \"r\" }\ndependencies = [{ name = \"" + pair[1] + "\", marker = \"n" + pair[0] + "\" }, { name = \"" + pair[1] + "\", marker = \"k\" }]\n"
	}
	d, err := Project(fstest.MapFS{"uv.lock": {Data: []byte(lock)}})
	if err != nil || !strings.Contains(d.Requirements, "a==1") || !strings.Contains(d.Requirements, "b==1") {
		t.Errorf("got %+v, %v", d, err)
	}
}
