package plugintest_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/plugintest"
)

func TestAWheelHasItsFilesAndRecordsThem(t *testing.T) {
	t.Parallel()
	want := map[string]string{"a/__init__.py": "x = 1\n", "zeros": strings.Repeat("\x00", 3<<20+5), "a-1.data/scripts/run": "#!/bin/sh\n"}
	content := plugintest.Wheel("a", "1", "py3-none-any", want, "b>=2")
	z, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r) // checks the sum, too
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		found[f.Name] = string(data)
	}
	for name, text := range want {
		sum := sha256.Sum256([]byte(text))
		line := fmt.Sprintf("%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(text))
		if found[name] != text || !strings.Contains(found["a-1.dist-info/RECORD"], line) {
			t.Errorf("%s has %d bytes, and the record is %q", name, len(found[name]), found["a-1.dist-info/RECORD"])
		}
	}
	if !strings.Contains(found["a-1.dist-info/METADATA"], "Requires-Dist: b>=2\n") || len(content) > 1<<20 {
		t.Errorf("%d bytes with %q", len(content), found["a-1.dist-info/METADATA"])
	}
}
