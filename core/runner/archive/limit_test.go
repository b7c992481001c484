//go:build linux

package archive

import "testing"

func TestALimitIsNamedAsItWasSet(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]string{2048 << 20: "disk_mb 2048", 1000: "the disk limit of 1000 bytes"} {
		if got := diskLimit(bytes); got != want {
			t.Errorf("%d: %q, want %q", bytes, got, want)
		}
	}
	for bytes, want := range map[float64]string{1 << 20: "1.0 MB", 2969 << 20: "2.9 GB", 999 << 20: "999.0 MB", 1000 << 20: "1.0 GB"} {
		if got := size(bytes); got != want {
			t.Errorf("%v: %q, want %q", bytes, got, want)
		}
	}
}
