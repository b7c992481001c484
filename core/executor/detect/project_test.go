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
	d, err := Folder(fstest.MapFS{
		"uv.lock":        {Data: []byte(someLock)},
		"pyproject.toml": {Data: []byte("[project]\ndependencies = [\"other\"]\n")},
	}, "", nil)
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
	}, "\n") + "\n"
	if d.Requirements != want || d.PythonVersion != ">=3.11" {
		t.Errorf("got\n%+v", d)
	}
}

func TestALockMayNeedTheProjectsOwnExtras(t *testing.T) {
	t.Parallel()
	d, err := Folder(fstest.MapFS{"uv.lock": {Data: []byte("version = 1\n[[package]]\nname = 'own'\nversion = '1'\nsource = { virtual = '.' }\n" +
		"dependencies = [{ name = 'own', extra = ['x'] }]\n[package.optional-dependencies]\nx = [{ name = 'six' }]\n" +
		"[[package]]\nname = 'six'\nversion = '1'\nsource = { registry = 'r' }\n")}}, "", nil)
	if err != nil || d.Requirements != "six==1\n" {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestAFileThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := Folder(fstest.MapFS{"uv.lock/x": {}}, "", nil); err == nil {
		t.Error("a folder was read as a lock")
	}
	if _, err := Folder(fstest.MapFS{"pyproject.toml": {Data: make([]byte, maxFile+1)}}, "", nil); err == nil || !strings.Contains(err.Error(), "pyproject.toml: must have at most") {
		t.Error(err)
	}
	text := "a = [" + strings.Repeat("1,", maxMarks) + "1]"
	if _, err := Folder(fstest.MapFS{"pyproject.toml": {Data: []byte(text)}}, "", nil); err == nil || !strings.Contains(err.Error(), "commas") {
		t.Error(err)
	}
}

func TestMarkersThatMayHoldOnLinux(t *testing.T) {
	t.Parallel()
	for marker, want := range map[string]bool{
		"sys_platform == 'linux'":                                                true,
		"sys_platform == 'darwin'":                                               false,
		"sys_platform != 'win32'":                                                true,
		"sys_platform != 'linux'":                                                false,
		`os_name == "nt"`:                                                        false,
		"platform_system == 'Linux' and sys_platform == 'win32'":                 false,
		"platform_machine == 'arm64' and sys_platform == 'darwin'":               false,
		"(platform_machine == 'x' and sys_platform == 'linux') or os_name=='nt'": true,
		"python_full_version < '3.12'":                                           true,
		"":                                                                       true,
	} {
		if got := mayHoldOnLinux(marker); got != want {
			t.Errorf("%q: %t", marker, got)
		}
	}
}

func TestProjectEndsOnCyclesOfConditions(t *testing.T) {
	t.Parallel()
	lock := "version = 1\n[[package]]\nname = \"app\"\nversion = \"1\"\nsource = { virtual = \".\" }\ndependencies = [{ name = \"a\", marker = \"m\" }]\n"
	for _, pair := range [][2]string{{"a", "b"}, {"b", "a"}} {
		lock += "[[package]]\nname = \"" + pair[0] + "\"\nversion = \"1\"\nsource = { registry = \"r\" }\ndependencies = [{ name = \"" + pair[1] + "\", marker = \"n" + pair[0] + "\" }, { name = \"" + pair[1] + "\", marker = \"k\" }]\n"
	}
	d, err := Folder(fstest.MapFS{"uv.lock": {Data: []byte(lock)}}, "", nil)
	if err != nil || !strings.Contains(d.Requirements, "a==1") || !strings.Contains(d.Requirements, "b==1") {
		t.Errorf("got %+v, %v", d, err)
	}
}
