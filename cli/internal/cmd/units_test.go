package cmd

import "testing"

func TestASizeMayHaveAUnit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"128": 128, "128M": 128, "128mb": 128, "128MiB": 128, "2G": 2048, "2gib": 2048, "-1": -1, "0": 0, "1.5G": 1536, "1t": 1 << 20, "2048k": 2,
		"1048576B": 1, "9223372036854775807": 1<<63 - 1, "0.5G": 512,
	} {
		var m megabytes
		if err := m.Set(text); err != nil || int64(m) != want {
			t.Errorf("%s: got %d, %v; want %d", text, m, err, want)
		}
	}
	for _, text := range []string{"", "M", "12K", "1.5", "0.1G", "128 M", "9223372036854775807G", "M128", "1e3", "1GG", "1.G", "NaN"} {
		var m megabytes
		if m.Set(text) == nil {
			t.Errorf("%q is %d", text, m)
		}
	}
}

func TestATimeMayHaveUnits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]seconds{
		"90": 90, "0.5": 0.5, "90s": 90, "1h": 3600, "1H30M": 5400, "2d": 172800, "500ms": 0.5, "15min": 900, "1.5h": 5400, "1m30s": 90, "0": 0, "-1": -1, "10sec": 10,
	} {
		var s seconds
		if err := s.Set(text); err != nil || s != want {
			t.Errorf("%s: got %v, %v; want %v", text, s, err, want)
		}
	}
	for _, text := range []string{"", "s", "1x", "1 h", "h1", "1h30", "-1h", "1hm", "1:30"} {
		var s seconds
		if s.Set(text) == nil {
			t.Errorf("%q is %v", text, s)
		}
	}
}
