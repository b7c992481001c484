package detect

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestTheEntrypointIsFoundInItsOrder(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ names, want string }{
		{"", ""},
		{"README.md data.json", ""},
		{"b.py a.py", "b.py"},
		{"pkg/x.py a.py", "pkg/x.py"},
		{"a.py __main__.py", "__main__.py"},
		{"a.py __main__.py main.py", "main.py"},
		{"pkg/main.py pkg/__main__.py z.py", "pkg/main.py"},
		{"./a.txt ./z.py ./main.py", "main.py"},
		{"main.pyc main.py.txt", ""},
	} {
		if got := Entrypoint(strings.Fields(test.names)); got != test.want {
			t.Errorf("of %q: %q, want %q", test.names, got, test.want)
		}
	}
}

func TestPEP723ReadsTheScriptBlock(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, source, requires, version string
		ok, fails                       bool
	}{
		{name: "nothing", source: "print(1)\n"},
		{name: "a block", source: "#!/usr/bin/env python\n# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\n#   \"requests<3\",\n#   \"rich\",\n# ]\n# ///\n\nimport rich\n", requires: "requests<3\nrich\n", version: ">=3.11", ok: true},
		{name: "a block at the very end", source: "# /// script\n# dependencies = ['a']\n# ///", requires: "a\n", ok: true},
		{name: "lines of another system", source: "\xef\xbb\xbf# /// script\r\n# dependencies = ['a']\r\n# ///\r\n", requires: "a\n", ok: true},
		{name: "a tool's own table", source: "# /// script\n# dependencies = ['a']\n# [tool.ruff]\n# line-length = 100\n# [tool.uv]\n# no-cache = true\n# ///\n", requires: "a\n", ok: true},
		{name: "a setting that decides", source: "# /// script\n# dependencies = ['a']\n# [tool.uv]\n# exclude-newer = '2026-01-01T00:00:00Z'\n# ///\n", ok: true, fails: true},
		{name: "a date that decides", source: "# /// script\n# dependencies = ['a']\n# [tool.uv]\n# exclude-newer = 2026-01-01\n# ///\n", ok: true, fails: true},
		{name: "nothing to decide", source: "# /// script\n# dependencies = []\n# [tool.uv]\n# prerelease = 'allow'\n# ///\n", ok: true},
		{name: "a source", source: "# /// script\n# dependencies = ['A.b>1']\n# [tool.uv.sources]\n# a-b = { git = 'https://x/a' }\n# ///\n", ok: true, fails: true},
		{name: "an index as a source", source: "# /// script\n# dependencies = ['a']\n# [tool.uv]\n# sources = { a = { index = 'b' } }\n# ///\n", requires: "a\n", ok: true},
		{name: "no table of sources", source: "# /// script\n# dependencies = ['a']\n# [tool.uv]\n# sources = 1\n# ///\n", ok: true, fails: true},
		{name: "an empty list", source: "# /// script\n# dependencies = []\n# ///\n", ok: true},
		{name: "another type of block", source: "# /// pyproject\n# dependencies = ['a']\n# ///\n"},
		{name: "another type, then ours", source: "# /// other\n# x\n# ///\n# /// script\n# dependencies = ['a']\n# ///\n", ok: false},
		{name: "another type, a line, then ours", source: "# /// other\n# x\n# ///\n\n# /// script\n# dependencies = ['a']\n# ///\n", requires: "a\n", ok: true},
		{name: "a block that does not end", source: "# /// script\n# dependencies = ['a']\n", ok: true, fails: true},
		{name: "a block that is interrupted", source: "# /// script\n# dependencies = ['a']\n\n# ///\n", ok: true, fails: true},
		{name: "a block without content", source: "# /// script\n# ///\n"},
		{name: "a line without the space", source: "# /// script\n#dependencies = ['a']\n# ///\n", ok: true, fails: true},
		{name: "a blank after the opening", source: "# /// script \n# dependencies = ['a']\n# ///\n", ok: true, fails: true},
		{name: "an opening without blanks", source: "#///script\n# dependencies = ['a']\n# ///\n", ok: true, fails: true},
		{name: "an opening beside a block", source: "# /// Script\n# x\n\n# /// script\n# dependencies = ['a']\n# ///\n", requires: "a\n", ok: true},
		{name: "a block that is indented", source: " # /// script\n # dependencies = ['a']\n # ///\n"},
		{name: "the last end of the comment counts", source: "# /// script\n# dependencies = ['a']\n# #\n# ///\n# ///\n", ok: true, fails: true},
		{name: "two blocks", source: "# /// script\n# dependencies = ['a']\n# ///\n\n# /// script\n# dependencies = ['b']\n# ///\n", ok: true, fails: true},
		{name: "what is no TOML", source: "# /// script\n# dependencies = [\n# ///\n", ok: true, fails: true},
		{name: "what is no list", source: "# /// script\n# dependencies = 'a'\n# ///\n", ok: true, fails: true},
		{name: "a number for a version", source: "# /// script\n# requires-python = 3.12\n# ///\n", ok: true, fails: true},
		{name: "a dependency of two lines", source: "# /// script\n# dependencies = [\"a\\n--index-url http://x\"]\n# ///\n", ok: true, fails: true},
		{name: "an option as a dependency", source: "# /// script\n# dependencies = [\"--pre\"]\n# ///\n", ok: true, fails: true},
		{name: "an empty dependency", source: "# /// script\n# dependencies = [\" \"]\n# ///\n", ok: true, fails: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			script, ok, err := ParseScript([]byte(test.source))
			requires, version := script.Requirements(), script.RequiresPython
			if requires != test.requires || version != test.version || ok != test.ok || (err != nil) != test.fails {
				t.Errorf("got %q, %q, %v, %v", requires, version, ok, err)
			}
		})
	}
}

func TestSelectVersionTakesTheFirstThatSatisfies(t *testing.T) {
	t.Parallel()
	at := []string{"3.14", "3.13", "3.12", "3.9"}
	for _, test := range []struct{ spec, want string }{
		{">=3.11", "3.14"},
		{">=3.11,<3.14", "3.13"},
		{">= 3.9 , < 3.12", "3.9"},
		{"==3.12.*", "3.12"},
		{"==3.12", "3.12"},
		{"==3.12.4", "3.12"},
		{"~=3.12", "3.14"},
		{"~=3.12.0", "3.12"},
		{"<3.13.2", "3.13"},
		{"<3.13", "3.12"},
		{"<=3.13", "3.13"},
		{">3.13", "3.14"},
		{"!=3.14.*", "3.13"},
		{"!=3.14.1", "3.14"},
		{"==3.*", "3.14"},
		{"!=3.*", ""},
		{">=3", "3.14"},
		{"<3", ""},
		{"<4", "3.14"},
		{">=3.15", ""},
		{">=3.13rc1,<3.14", "3.13"},
		{"===3.12.1", "3.12"},
		{"3.12", ""},
		{"", ""},
		{">=x", ""},
		{"~=3", ""},
		{">=3.*", ""},
	} {
		if got := SelectVersion(test.spec, at); got != test.want {
			t.Errorf("%q: %q, want %q", test.spec, got, test.want)
		}
	}
	for spec, want := range map[string]string{"==3.12.*": "3.12", "~=3.11.2": "3.11", ">=3.11": "", "==3": ""} {
		if got := SelectVersion(spec, nil); got != want {
			t.Errorf("%q without versions: %q, want %q", spec, got, want)
		}
	}
	if ValidSpecifier("new") || !ValidSpecifier(">=3.9") {
		t.Error("ValidSpecifier is wrong")
	}
}

func TestTarFindsWhatTheFilesSay(t *testing.T) {
	t.Parallel()
	const script = "# /// script\n# dependencies = ['a']\n# requires-python = '>=3.11'\n# ///\n"
	const silent = "# /// script\n# requires-python = '>=3.12'\n# ///\n"
	for _, test := range []struct {
		name  string
		ask   Ask
		files []string
		want  Found
		fails bool
	}{
		{name: "nothing"},
		{name: "requirements.txt", files: []string{"requirements.txt", "r\n", "main.py", "x"}, want: Found{Entrypoint: "main.py", Requirements: "r\n"}},
		{name: "a block before requirements.txt", files: []string{"requirements.txt", "r\n", "main.py", script}, want: Found{Entrypoint: "main.py", Requirements: "a\n", PythonVersion: ">=3.11"}},
		{name: "a block that does not speak of them", files: []string{"requirements.txt", "r\n", "main.py", silent}, want: Found{Entrypoint: "main.py", Requirements: "r\n", PythonVersion: ">=3.12"}},
		{name: "a block of another file", files: []string{"main.py", "x", "tool.py", script}, want: Found{Entrypoint: "main.py"}},
		{name: "the first Python file's block", files: []string{"z.py", script, "a.py", "x"}, want: Found{Entrypoint: "z.py", Requirements: "a\n", PythonVersion: ">=3.11", Guessed: true}},
		{name: "a later main.py's block", files: []string{"z.py", script, "./main.py", silent}, want: Found{Entrypoint: "main.py", PythonVersion: ">=3.12"}},
		{name: "an earlier __main__.py's block", files: []string{"__main__.py", silent, "a.py", script}, want: Found{Entrypoint: "__main__.py", PythonVersion: ">=3.12"}},
		{name: "the last of one name", files: []string{"main.py", "x", "main.py", script}, want: Found{Entrypoint: "main.py", Requirements: "a\n", PythonVersion: ">=3.11"}},
		{name: "a link in a file's place", files: []string{"main.py", script, "main.py", "->other", "b.py", silent}, want: Found{Entrypoint: "b.py", PythonVersion: ">=3.12"}},
		{name: "a link in the place of requirements.txt", files: []string{"main.py", "x", "requirements.txt", "r", "requirements.txt", "->other"}, want: Found{Entrypoint: "main.py"}},
		{name: "requirements.txt elsewhere", files: []string{"main.py", "x", "sub/requirements.txt", "r"}, want: Found{Entrypoint: "main.py"}},
		{name: "a named entrypoint", ask: Ask{Entrypoint: "sub/app.py"}, files: []string{"main.py", silent, "sub/app.py", script}, want: Found{Entrypoint: "sub/app.py", Requirements: "a\n", PythonVersion: ">=3.11"}},
		{name: "a named entrypoint of no Python name", ask: Ask{Entrypoint: "app"}, files: []string{"app", script}, want: Found{Entrypoint: "app", Requirements: "a\n", PythonVersion: ">=3.11"}},
		{name: "no entrypoint", ask: Ask{NoEntrypoint: true}, files: []string{"main.py", script, "requirements.txt", "r"}, want: Found{Requirements: "r"}},
		{name: "a block that is wrong", files: []string{"main.py", "# /// script\n# = \n# ///\n"}, want: Found{Entrypoint: "main.py"}, fails: true},
		{name: "a requirements.txt too large", files: []string{"requirements.txt", strings.Repeat("x\n", maxFile)}, fails: true},
		{name: "a source too large keeps its head", files: []string{"main.py", script + strings.Repeat("\n", 2*maxFile)}, want: Found{Entrypoint: "main.py", Requirements: "a\n", PythonVersion: ">=3.11"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := Tar(bytes.NewReader(archive(t, test.files...)), test.ask)
			_, typed := errors.AsType[*Error](err)
			if got != test.want || typed != test.fails || (err != nil) != test.fails {
				t.Errorf("got %+v, %v, want %+v", got, err, test.want)
			}
		})
	}
}

func TestABrokenTarIsNoStatementOfItsFiles(t *testing.T) {
	t.Parallel()
	whole := archive(t, "main.py", strings.Repeat("x", 2000))
	for _, broken := range [][]byte{whole[:700], []byte(strings.Repeat("garbage ", 200))} {
		_, err := Tar(bytes.NewReader(broken), Ask{})
		if _, typed := errors.AsType[*Error](err); err == nil || typed {
			t.Errorf("error %v", err)
		}
	}
	if _, err := Tar(io.MultiReader(bytes.NewReader(whole[:600]), failing{}), Ask{}); !errors.Is(err, errBroken) {
		t.Errorf("error %v", err)
	}
}

var errBroken = errors.New("broken")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errBroken }

// archive makes a tar of path, content pairs; content "->x" is a link.
func archive(t testing.TB, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		h := &tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))}
		if target, ok := strings.CutPrefix(files[i+1], "->"); ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, target, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, files[i+1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// reference is the specification's own expression and what its example does with it.
var reference = regexp.MustCompile(`(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(?:^#(?:| .*)$\s)+)^# ///$`)

func referenceBlock(source string) (text string, count int) {
	source = strings.ReplaceAll(strings.TrimPrefix(source, "\xef\xbb\xbf"), "\r\n", "\n")
	for _, m := range reference.FindAllStringSubmatch(source, -1) {
		if m[1] != "script" {
			continue
		}
		count++
		var b strings.Builder
		for line := range strings.Lines(m[2]) {
			if rest, ok := strings.CutPrefix(line, "# "); ok {
				b.WriteString(rest)
			} else {
				b.WriteString(line[1:])
			}
		}
		if count == 1 {
			text = b.String()
		}
	}
	return text, count
}

func FuzzPEP723(f *testing.F) {
	for _, seed := range []string{
		"# /// script\n# dependencies = ['a']\n# ///\n",
		"# /// script\n#\n# ///\n# /// script\n# ///\n# ///",
		"# /// a\n# /// script\n# ///\n# ///\n#\n# /// script\n# x\n# ///",
		"# /// script\r\n# x\r\n# ///\r\n",
		"# /// script\n# x\n# ///\n\n# /// script\n# y\n# ///",
		"# /// script \n# x\n# /// \n# ///",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		if bytes.ContainsAny(bytes.ReplaceAll(source, []byte("\r\n"), nil), "\r\v\f") {
			t.Skip("the expression's \\s takes these, and the end of a line is none of them")
		}
		text, ok, err := scriptBlock(source)
		want, count := referenceBlock(string(source))
		// Without a block, what was meant to be one is an error.
		if ok != (count > 0) || count > 0 && (err != nil) != (count > 1) || err == nil && string(text) != want {
			t.Fatalf("of %q: %q, %v, %v; the expression finds %d: %q", source, text, ok, err, count, want)
		}
		script, ok, err := ParseScript(source)
		if err == nil && ok {
			requires := script.Requirements()
			for line := range strings.Lines(requires) {
				if strings.HasPrefix(strings.TrimSpace(line), "-") || strings.TrimSpace(line) == "" {
					t.Fatalf("of %q: requirements %q", source, requires)
				}
			}
		}
	})
}

func FuzzTar(f *testing.F) {
	f.Add(archive(f, "main.py", "# /// script\n# dependencies = ['a']\n# ///\n", "requirements.txt", "r"))
	f.Add(archive(f, "a.py", "x", "a.py", "->b", "./__main__.py", ""))
	f.Fuzz(func(t *testing.T, content []byte) {
		found, err := Tar(bytes.NewReader(content), Ask{})
		if err == nil && len(found.Requirements) > 2*maxFile {
			t.Fatalf("requirements of %d bytes", len(found.Requirements))
		}
	})
}

func FuzzSelectVersion(f *testing.F) {
	f.Add(">=3.11,<3.13")
	f.Add("==3.*")
	f.Fuzz(func(t *testing.T, spec string) {
		got := SelectVersion(spec, []string{"3.13", "3.12"})
		if got != "" && !ValidSpecifier(spec) {
			t.Fatalf("%q selects %q", spec, got)
		}
	})
}
