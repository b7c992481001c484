package detect

import (
	"testing"
	"testing/fstest"
)

func TestTheTextOfRequirements(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"six\n":                               "six\n",
		"":                                    "",
		"\xef\xbb\xbfsix":                     "six",
		"\xff\xfes\x00i\x00x\x00\r\x00\n\x00": "six\r\n",
		"\xfe\xff\x00s\x00i\x00x":             "six",
		"\xff\xfe":                            "",
		"\xff\xfe\x3d\xd8\x00\xde":            "\U0001f600",
		"\xff\xfes\x00i":                      "error",
		"# caf\xe9\nsix":                      "error",
	} {
		got, err := Text([]byte(raw))
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: %q, %v; want %q", raw, got, err, want)
		}
		found, err := Folder(fstest.MapFS{requirementsName: {Data: []byte(raw)}}, "", nil)
		if (err != nil) != (want == "error") || err == nil && found.Requirements != want {
			t.Errorf("%q in a folder: %q, %v", raw, found.Requirements, err)
		}
	}
}
