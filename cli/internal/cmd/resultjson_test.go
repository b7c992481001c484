package cmd

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/frontends/http/apijson"
)

// TestAResultIsWhatTheServerWrites reads the vectors that server and SDKs are held to.
func TestAResultIsWhatTheServerWrites(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../testdata/wire/result/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var vector struct {
				Execution executor.Execution `json:"execution"`
				Stdout    []byte             `json:"stdout_base64"`
				Stderr    []byte             `json:"stderr_base64"`
				Displays  []executor.Display `json:"displays"`
				Wire      any                `json:"wire"`
			}
			if err := json.Unmarshal(raw, &vector); err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := printJSON(&b, apijson.ResultOf(vector.Execution, vector.Stdout, vector.Stderr, vector.Displays)); err != nil {
				t.Fatal(err)
			}
			var got any
			if err := json.Unmarshal(b.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, vector.Wire) {
				t.Errorf("got  %v\nwant %v", got, vector.Wire)
			}
		})
	}
}
