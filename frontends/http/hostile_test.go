package httpfrontend

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// hostileBodies are JSON objects that a well-behaved client does not send. FIELD stands for one of the endpoint's string fields.
var hostileBodies = []struct{ name, body string }{
	{"an unknown field", `{"FIELD":"x","no_such_field":1}`},
	{"an unknown field that is null", `{"FIELD":"x","no_such_field":null}`},
	{"a field in capitals", `{"FIELD":"x","CONFIG":{}}`},
	{"a field with a space", `{"FIELD":"x"," config":{}}`},
	{"a field without a name", `{"FIELD":"x","":1}`},
	{"a duplicate field", `{"FIELD":"x","FIELD":"y"}`},
	{"a duplicate field, once escaped", `{"FIELD":"x","\u0063onfig":{},"config":{}}`},
	{"a duplicate field that is null", `{"FIELD":"x","FIELD":null}`},
	{"a duplicate unknown field", `{"FIELD":"x","no":1,"no":2}`},
	{"a number for a string", `{"FIELD":7}`},
	{"an object for a string", `{"FIELD":{"a":1}}`},
	{"an array for a string", `{"FIELD":["x"]}`},
	{"a boolean for a string", `{"FIELD":true}`},
	{"null for a string", `{"FIELD":null}`},
	{"an empty string", `{"FIELD":""}`},
	{"a lone surrogate", `{"FIELD":"\ud800"}`},
	{"an unpaired escape", `{"FIELD":"\u12"}`},
	{"NUL in a string", `{"FIELD":"a\u0000b"}`},
	{"bytes that are not UTF-8 in a value", "{\"FIELD\":\"\xff\"}"},
	{"bytes that are not UTF-8 in a name", "{\"FIELD\":\"x\",\"\xc3\":1}"},
	{"a byte order mark", "\xef\xbb\xbf{\"FIELD\":\"x\"}"},
	{"trailing data", `{"FIELD":"x"} x`},
	{"two objects", `{"FIELD":"x"}{"FIELD":"y"}`},
	{"a trailing comma", `{"FIELD":"x",}`},
	{"a comment", `{"FIELD":"x"/**/}`},
	{"single quotes", `{'FIELD':'x'}`},
	{"a control character in a string", "{\"FIELD\":\"a\nb\"}"},
	{"nothing", ``},
	{"white space", " \n "},
	{"null", `null`},
	{"an array", `[{"FIELD":"x"}]`},
	{"a string", `"FIELD"`},
	{"a number", `7`},
	{"a body that was cut", `{"FIELD":"x`},
	{"deep nesting", strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000)},
	{"deep nesting below a field", `{"FIELD":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`},
	{"a megabyte of unknown names", `{"FIELD":"x"` + strings.Repeat(`,"`+strings.Repeat("n", 1000)+`":1`, 1000) + `}`},
	{"a name of a megabyte", `{"FIELD":"x","` + strings.Repeat("n", 1<<20) + `":1}`},
	{"NaN", `{"FIELD":"x","config":{"memory_mb":NaN}}`},
	{"a number with a leading zero", `{"FIELD":"x","config":{"memory_mb":007}}`},
	{"a number with a plus", `{"FIELD":"x","config":{"memory_mb":+7}}`},
	{"more digits than an int64 has", `{"FIELD":"x","config":{"memory_mb":123456789012345678901234567890}}`},
	{"the largest int64", `{"FIELD":"x","config":{"memory_mb":9223372036854775807}}`},
	{"the smallest int64", `{"FIELD":"x","config":{"pids":-9223372036854775808}}`},
	{"a number beyond float64", `{"FIELD":"x","config":{"memory_mb":1e999,"timeout_seconds":1e999}}`},
	{"a number of seconds beyond every bound", `{"FIELD":"x","config":{"timeout_seconds":1e18,"kill_grace_seconds":1e18}}`},
	{"a fraction for a whole number", `{"FIELD":"x","config":{"pids":1.5}}`},
	{"a string for a number", `{"FIELD":"x","config":{"pids":"7","timeout_seconds":"7"}}`},
	{"negative and zero limits", `{"FIELD":"x","config":{"pids":0,"memory_mb":-1,"timeout_seconds":-0.5,"kill_grace_seconds":0}}`},
	{"an unknown limit, one in capitals, a duplicate", `{"FIELD":"x","config":{"timeout":1,"PIDs":2,"pids":3,"pids":4}}`},
	{"a string for the limits", `{"FIELD":"x","config":"large"}`},
	{"null for the limits and for one of them", `{"FIELD":"x","config":{"pids":null}}`},
	{"no names of variables", `{"FIELD":"x","env":{"":"a","A=B":"a","C\u0000":"a","ok":7,"d":"\u0000","d":"x"}}`},
	{"a half of a surrogate pair in a name", `{"FIELD":"x","env":{"A\ud800":"a"}}`},
	{"an array of variables", `{"FIELD":"x","env":["A=B"]}`},
	{"no strings in a list", `{"FIELD":"x","pre_commands":["a",1,null,["b"],{"c":1},"\u0000"]}`},
	{"an object for a list", `{"FIELD":"x","pre_commands":{"0":"a"}}`},
	{"a string for a list", `{"FIELD":"x","pre_commands":"a b"}`},
	{"an unknown language", `{"FIELD":"x","language":"PYTHON"}`},
	{"a language of another type", `{"FIELD":"x","language":1}`},
	{"a version that is none", `{"FIELD":"x","python_version":"3.12.1"}`},
}

// TestWhatIsAnsweredToHostileBodies holds status, code and fields of the answers to bad JSON. -update writes the golden file.
func TestWhatIsAnsweredToHostileBodies(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	for _, endpoint := range []struct{ path, field string }{
		{"/api/v1/exec/sync", "code"},
		{"/api/v1/exec/async multipart", "code"},
		{"/api/v1/sessions", "name"},
		{"/api/v1/sessions/ctx-1/requirements", "requirements_txt"},
		{"/api/v1/sessions/ctx-1/restart", "wipe"},
	} {
		h := handlerOf(t, hello().service())
		fmt.Fprintf(&got, "# %s\n", endpoint.path)
		for _, c := range hostileBodies {
			body := strings.ReplaceAll(c.body, "FIELD", endpoint.field)
			contentType := "application/json"
			path, form, _ := strings.Cut(endpoint.path, " ")
			if form != "" {
				contentType = "multipart/form-data; boundary=b"
				body = "--b\r\nContent-Disposition: form-data; name=\"metadata\"\r\n\r\n" + body + "\r\n--b--\r\n"
			}
			w := do(t, h, http.MethodPost, path, strings.NewReader(body), "Content-Type", contentType)
			var p struct {
				Code   string
				Detail string
				Errors []struct{ Location, Message string }
			}
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
				t.Fatalf("%s: %v in %s", c.name, err, w.Body)
			}
			fmt.Fprintf(&got, "%s: %d %s", c.name, w.Code, p.Code)
			if w.Code >= 400 && len(p.Errors) == 0 {
				fmt.Fprintf(&got, " %s", p.Detail)
			}
			for i, e := range p.Errors[:min(8, len(p.Errors))] {
				message, _, listed := strings.Cut(e.Message, "unknown field: must be one of ")
				if listed { // a new field is no change
					message += "unknown field, and the known ones"
				}
				fmt.Fprintf(&got, "\n\t%d %.150q: %s", i, e.Location, message)
			}
			if n := len(p.Errors) - 8; n > 0 {
				fmt.Fprintf(&got, "\n\tand %d", n)
			}
			got.WriteByte('\n')
		}
	}
	const golden = "testdata/hostile.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	gotLines, wantLines := strings.Split(got.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		a, b := "", ""
		if i < len(gotLines) {
			a = gotLines[i]
		}
		if i < len(wantLines) {
			b = wantLines[i]
		}
		if a != b {
			t.Fatalf("line %d of %s\ngot  %s\nwant %s", i+1, golden, a, b)
		}
	}
}
