package detect

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

// deep are texts that lead a parser far down.
func deep() map[string]string {
	return map[string]string{
		"arrays":                            "dependencies = " + strings.Repeat("[", 3<<20),
		"tables":                            "a = " + strings.Repeat("{a=", 3<<20),
		"tables' names":                     "[" + strings.Repeat("a.", 1<<20) + "a",
		"arrays that strings seem to close": "a = " + strings.Repeat(`["]",`, 2<<20),
	}
}

func TestNestedMetadataIsRefused(t *testing.T) {
	t.Parallel()
	for name, text := range deep() {
		if _, ok, err := ParseScript([]byte("# /// script\n# " + text + "\n# ///\n")); !ok || err == nil {
			t.Errorf("%s: %t, %v", name, ok, err)
		}
	}
}

func TestLargeMetadataIsRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a name of many parts": strings.Repeat("a.", maxScript/2) + "a = 1",
		"many names":           strings.Repeat("\n# a.b = 1", maxScript/8),
	} {
		if _, ok, err := ParseScript([]byte("# /// script\n# " + text + "\n# ///\n")); !ok || err == nil || !strings.Contains(err.Error(), "more than") {
			t.Errorf("%s: %t, %.100v", name, ok, err)
		}
	}
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, "#   'a-package-of-some-name-%d>=1.2',\n", i)
	}
	if m, _, err := ParseScript([]byte("# /// script\n# dependencies = [\n" + many.String() + "# ]\n# ///\n")); len(m.Dependencies) != 5000 {
		t.Errorf("%d dependencies, %v", len(m.Dependencies), err)
	}
}

func TestANestedProjectIsRefused(t *testing.T) {
	t.Parallel()
	for name, text := range deep() {
		for _, file := range []string{"uv.lock", "pyproject.toml"} {
			if _, err := Folder(fstest.MapFS{file: {Data: []byte(text)}}, "", nil); err == nil {
				t.Errorf("%s: %s is read", file, name)
			}
		}
	}
}

// The TOML reader panics on some of these, which ended the process of whoever was sent such a text.
func TestAValueOfAnotherKindIsAnError(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"1979-05-27", "07:32:00", "1979-05-27T07:32:00", "1979-05-27T07:32:00Z", "1.5", "inf", "true", "[[]]", "[{a=1}]", "{}"} {
		for _, text := range []string{"requires-python = ", "dependencies = ", "requires-python.a = ", "dependencies.a = "} {
			_, ok, err := ParseScript([]byte("# /// script\n# " + text + value + "\n# ///\n"))
			if !ok || err == nil || !strings.HasPrefix(err.Error(), "script metadata: "+text[:len("dependencies")]) || strings.Contains(err.Error(), "toml") {
				t.Errorf("%s%s: %t, %v", text, value, ok, err)
			}
		}
		for _, project := range []fstest.MapFS{
			{"pyproject.toml": {Data: []byte("project.dependencies = " + value)}},
			{"pyproject.toml": {Data: []byte("project.dependencies = [" + value + "]")}},
			{"uv.lock": {Data: []byte("version = " + value)}},
			{"uv.lock": {Data: []byte("version = 1\n[[package]]\nname = " + value)}},
			{"uv.lock": {Data: []byte("version = 1\n[[package]]\nsource.url = " + value)}},
			{"uv.lock": {Data: []byte("version = 1\n[[package]]\noptional-dependencies = " + value)}},
		} {
			if _, err := Folder(project, "", nil); err == nil {
				t.Errorf("%v is read", project)
			}
		}
	}
}

func TestAConditionThatGrowsIsGivenUp(t *testing.T) {
	t.Parallel()
	var lock strings.Builder
	lock.WriteString("version = 1\n[[package]]\nname = 'own'\nsource = { virtual = '.' }\ndependencies = [{ name = 'p0' }]\n")
	const packages = 2000
	for i := range packages {
		fmt.Fprintf(&lock, "[[package]]\nname = 'p%d'\nversion = '1'\nsource = { registry = 'r' }\n", i)
		if i+1 < packages {
			fmt.Fprintf(&lock, "dependencies = [{ name = 'p%d', marker = \"sys_platform != '%d'\" }]\n", i+1, i)
		}
	}
	found, err := Folder(fstest.MapFS{"uv.lock": {Data: []byte(lock.String())}}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(found.Requirements, "\n"); lines != packages || len(found.Requirements) > packages*(maxCondition+100) {
		t.Errorf("%d lines, %d bytes", lines, len(found.Requirements))
	}
}
