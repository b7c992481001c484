package detect

import (
	"archive/tar"
	"fmt"
	"strings"
	"testing"
)

// remembered is how many bytes of names c holds after many files, each with a long name.
func remembered(t *testing.T, c *collector) int {
	t.Helper()
	for i := range 2000 {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("%s%d.py", strings.Repeat("x", 10_000), i)}
		if err := c.take(h, strings.NewReader("")); err != nil {
			t.Fatal(err)
		}
	}
	bytes := 0
	for name := range c.present {
		bytes += len(name)
	}
	return bytes
}

func TestNamesThatCannotMatterAreNotRemembered(t *testing.T) {
	t.Parallel()
	c := &collector{ask: Ask{Entrypoint: "app.py"}, kept: map[string][]byte{}, present: map[string]bool{}}
	if n := remembered(t, c); n != 0 {
		t.Errorf("%d bytes of names are held although the entrypoint is known", n)
	}
	c = &collector{kept: map[string][]byte{}, present: map[string]bool{}}
	if n := remembered(t, c); n > maxNameBytes {
		t.Errorf("%d bytes of names are held, at most %d may be", n, maxNameBytes)
	}
	for _, name := range []string{dunderName, mainName} {
		if err := c.take(&tar.Header{Typeflag: tar.TypeReg, Name: name}, strings.NewReader("# "+name)); err != nil {
			t.Fatal(err)
		}
		if found, err := c.found(); err != nil || found.Entrypoint != name {
			t.Errorf("found %+v, %v, want %s", found, err, name)
		}
	}
}
