package cmd

import "testing"

func TestASizeMayHaveAUnit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"128": 128, "128M": 128, "128mb": 128, "128MiB": 128, "2G": 2048, "2gib": 2048, "-1": -1, "0": 0} {
		var m megabytes
		if err := m.Set(text); err != nil || int64(m) != want {
			t.Errorf("%s: got %d, %v; want %d", text, m, err, want)
		}
	}
	for _, text := range []string{"", "M", "1.5G", "12K", "128 M", "9223372036854775807G", "M128"} {
		var m megabytes
		if m.Set(text) == nil {
			t.Errorf("%q is %d", text, m)
		}
	}
}
