package detect

import (
	"strings"
	"testing"
)

func TestWhatIsCompressedIsNamed(t *testing.T) {
	t.Parallel()
	for head, want := range map[string]string{
		"\x1f\x8b\x08": "gzip", "BZh9": "bzip2", "\xfd7zXZ\x00": "xz", "PK\x03\x04": "zip", "\x89LZO\x00\r\n": "lzop", "Rar!\x1a\x07\x00": "rar",
		"\x5d\x00\x00\x80\x00" + strings.Repeat("\xff", 8):          "lzma", // tar --lzma
		"\x5d\x00\x00\x00\x04" + strings.Repeat("\xff", 8):          "lzma", // xz -9 --format=lzma
		"\x5d\x00\x00\x80\x00\x00\x28\x00\x00\x00\x00\x00\x00":      "lzma", // of a known size
		"]" + strings.Repeat("\x00", 99) + strings.Repeat("0", 400): "",     // an old tar of a file of that name
		"BZh.txt" + strings.Repeat("\x00", 250) + "ustar\x0000":     "",
		"import zipfile": "", "": "", "[1, 2]": "", "]": "", "PK": "",
	} {
		if got := Compressed([]byte(head)); got != want {
			t.Errorf("%.20q: %q, want %q", head, got, want)
		}
	}
	if !IsTar([]byte(strings.Repeat("x", 257)+"ustar")) || IsTar([]byte(strings.Repeat("x", 257)+"usta")) {
		t.Error("a tar is known by its magic")
	}
}
