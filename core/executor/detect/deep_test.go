package detect

import (
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

func TestANestedProjectIsRefused(t *testing.T) {
	t.Parallel()
	for name, text := range deep() {
		for _, file := range []string{"uv.lock", "pyproject.toml"} {
			if _, err := Project(fstest.MapFS{file: {Data: []byte(text)}}); err == nil {
				t.Errorf("%s: %s is read", file, name)
			}
		}
	}
}
