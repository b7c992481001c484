package detect

import (
	"encoding/binary"
	"testing"
	"testing/fstest"
)

// PowerShell writes UTF-16, and Notepad a byte order mark.
func TestAProjectIsReadInEveryEncodingOfRequirements(t *testing.T) {
	t.Parallel()
	const project = "[project]\ndependencies = ['six']\n"
	wide := func(mark string, order binary.AppendByteOrder) []byte {
		raw := []byte(mark)
		for _, c := range []byte(project) {
			raw = order.AppendUint16(raw, uint16(c))
		}
		return raw
	}
	for name, raw := range map[string][]byte{
		"plain": []byte(project), "mark": []byte("\xef\xbb\xbf" + project),
		"little endian": wide("\xff\xfe", binary.LittleEndian), "big endian": wide("\xfe\xff", binary.BigEndian),
	} {
		found, err := Folder(fstest.MapFS{projectName: {Data: raw}}, "", nil)
		if err != nil || found.Requirements != "six\n" {
			t.Errorf("%s: %q, %v", name, found.Requirements, err)
		}
	}
	_, err := Folder(fstest.MapFS{projectName: {Data: []byte("[project]\nname = 'caf\xe9'\n")}}, "", nil)
	if err == nil || err.Error() != "pyproject.toml: must be UTF-8, or UTF-16 with a byte order mark" {
		t.Error(err)
	}
}

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
