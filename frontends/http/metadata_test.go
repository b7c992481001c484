package httpfrontend

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/frontends/http/apijson"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// submission is what metadata or a JSON body says.
type submission struct {
	spec  executor.Spec
	stdin *string
	files files
}

func decodeMetadata(raw string, withFiles bool) (submission, error) {
	var asked execRequest
	fields, into := shapeOf[execRequest](), any(&asked)
	if !withFiles {
		fields, into = shapeOf[pyexec.Spec](), &asked.Spec
	}
	given, err := fields.decode([]byte(raw), into, withFiles)
	s := submission{spec: apijson.ToSpec(asked.Spec), files: asked.Files}
	if given["stdin"] {
		s.stdin = &asked.Stdin
	}
	return s, err
}

func TestMetadataMeanings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, json string
		want       executor.Spec
	}{
		{"nothing is asked for", `{}`, executor.Spec{}},
		{"null is absent", `{"entrypoint":null,"config":null,"args":null,"env":null,"detect":null,"stdin":null,"language":null,"durable":null}`, executor.Spec{}},
		{"null limits are absent", `{"config":{"timeout_seconds":null,"memory_mb":null,"network_disabled":null}}`, executor.Spec{}},
		{"timeout 0 is the server's maximum", `{"config":{"timeout_seconds":0}}`, executor.Spec{Limits: executor.Limits{Timeout: executor.TimeoutMaximum}}},
		{"a tiny timeout is not the default", `{"config":{"timeout_seconds":1e-12}}`, executor.Spec{Limits: executor.Limits{Timeout: 1}}},
		{"the network can be forbidden", `{"config":{"network_disabled":true}}`, executor.Spec{Network: executor.NetworkOff}},
		{"detect can be true", `{"detect":true}`, executor.Spec{Detect: new(true)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, err := decodeMetadata(tt.json, false)
			if err != nil || !reflect.DeepEqual(s.spec, tt.want) || s.stdin != nil {
				t.Fatalf("got %+v, %v", s, err)
			}
		})
	}
}

func TestBadMetadataNamesEveryField(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, json string
		fields     []string
	}{
		{"unknown fields", `{"entry":"x","config":{"timeout":1,"memory":2}}`, []string{"entry", "config.timeout", "config.memory"}},
		{"wrong types", `{"entrypoint":1,"args":"a","env":[],"config":{"memory_mb":"1","network_disabled":1},"detect":"yes","outputs_changed":0}`,
			[]string{"entrypoint", "args", "env", "config.memory_mb", "config.network_disabled", "detect", "outputs_changed"}},
		{"wrong types inside", `{"args":["a",1,null],"env":{"A":1},"command":[["x"]]}`, []string{"args[1]", "args[2]", "env.A", "command[0]"}},
		{"config that is no object", `{"config":[]}`, []string{"config"}},
		{"metadata that is no object", `[]`, []string{"metadata"}},
		{"metadata that is null", `null`, []string{"metadata"}},
		{"fractions of megabytes", `{"config":{"memory_mb":1.5,"disk_mb":0.1}}`, []string{"config.memory_mb", "config.disk_mb"}},
		{"a negative timeout", `{"config":{"timeout_seconds":-1}}`, []string{"config.timeout_seconds"}},
		{"zero limits", `{"config":{"cpu_seconds":0,"memory_mb":0,"disk_mb":0,"cpu_shares":0,"pids":0,"output_bytes":0,"kill_grace_seconds":0}}`,
			[]string{"config.cpu_seconds", "config.memory_mb", "config.disk_mb", "config.cpu_shares", "config.pids", "config.output_bytes", "config.kill_grace_seconds"}},
		{"numbers beyond every bound", `{"config":{"memory_mb":9223372036854775807,"disk_mb":1e300,"timeout_seconds":1e999,"kill_grace_seconds":1e18,"pids":1e30}}`,
			[]string{"config.memory_mb", "config.disk_mb", "config.timeout_seconds", "config.kill_grace_seconds", "config.pids"}},
		{"unknown words", `{"language":"perl","interpreter":"mine"}`, []string{"language", "interpreter"}},
		{"a version that is no minor version", `{"python_version":"3.12.1"}`, []string{"python_version"}},
		{"NUL where it cannot go", `{"args":["a\u0000"],"entrypoint":"\u0000","env":{"A":"\u0000"}}`, []string{"args[0]", "entrypoint", "env.A"}},
		{"names that are no variables", `{"env":{"":"x","A=B":"x"}}`, []string{"env.(no name)", "env.A=B"}},
		{"a key that is too long", `{"idempotency_key":"` + strings.Repeat("k", 256) + `"}`, []string{"idempotency_key"}},
		{"a key that is there twice", `{"code":"a","code":"b"}`, []string{"code"}},
		{"a sample interval that is too short", `{"sample_interval_seconds":0.001}`, []string{"sample_interval_seconds"}},
		{"files in a multipart's metadata", `{"files":{}}`, []string{"files"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := decodeMetadata(tt.json, false)
			wantFields(t, err, tt.fields)
		})
	}
}

func TestBadFilesAreNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, json string
		fields     []string
	}{
		{"paths that leave", `{"files":{"../x":"","/etc/passwd":"","a/../../b":"",".":"","a//b":"","":"","c\u0000":""}}`,
			[]string{"files.../x", "files./etc/passwd", "files.a/../../b", "files..", "files.a//b", "files.(no name)", "files.c\x00"}},
		{"a name that is too long", `{"files":{"d/` + strings.Repeat("x", 256) + `":""}}`, []string{"files.d/" + strings.Repeat("x", 98) + "…"}},
		{"contents that are none", `{"files":{"a":1,"b":{},"c":{"base64":"%%"},"d":{"base64":1},"e":{"base64":"","x":1},"f":[]}}`,
			[]string{"files.a", "files.b.base64", "files.c.base64", "files.d.base64", "files.e", "files.f"}},
		{"a file in too many folders", `{"files":{"` + strings.Repeat("d/", depthMax) + `f":""}}`, []string{"files." + strings.Repeat("d/", 50) + "…"}},
		{"a file that is a folder too, far above", `{"files":{"a":"","a/b/c/d":""}}`, []string{"files.a/b/c/d"}},
		{"a file that is a folder too", `{"files":{"a":"","a/b":""}}`, []string{"files.a/b"}},
		{"a file that is there twice", `{"files":{"a":"1","a":"2"}}`, []string{"files.a"}},
		{"files that are no object", `{"files":["a"]}`, []string{"files"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := decodeMetadata(tt.json, true)
			wantFields(t, err, tt.fields)
		})
	}
}

func wantFields(t *testing.T, err error, fields []string) {
	t.Helper()
	p, _ := problemOf(err, "id")
	if p.Code != pyexec.CodeInvalid || p.Status != 422 {
		t.Fatalf("problem %+v", p)
	}
	got := make([]string, len(p.Errors))
	for i, e := range p.Errors {
		got[i] = e.Field
	}
	slices.Sort(got)
	slices.Sort(fields)
	if !slices.Equal(got, fields) {
		t.Fatalf("named %q, want %q", got, fields)
	}
}

func TestThousandsOfBadFieldsAreNotAllRepeated(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`{"a":1`)
	for i := range 5000 {
		fmt.Fprintf(&b, `,"f%d":1`, i)
	}
	b.WriteString("}")
	_, err := decodeMetadata(b.String(), false)
	if p, _ := problemOf(err, "id"); len(p.Errors) != maxFieldErrors {
		t.Fatalf("%d errors", len(p.Errors))
	}
}

func TestTooManyFilesAreSaidOnce(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`{"files":{"main.py":""`)
	for i := range maxFiles + 10 {
		fmt.Fprintf(&b, `,"f%d":""`, i)
	}
	b.WriteString("}}")
	_, err := decodeMetadata(b.String(), true)
	wantFields(t, err, []string{"files"})
}

func TestWhatIsNotJSONIs400(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{"empty": "", "text": "hello", "cut": `{"code":`, "two values": "{} {}", "trailing comma": `{"a":1,}`, "not UTF-8": "{\"code\":\"\xff\"}",
		"a byte order mark": "\xef\xbb\xbf{}", "too deep": strings.Repeat("[", 20000)} {
		for _, isBody := range []bool{false, true} {
			_, err := decodeMetadata(raw, isBody)
			if p, _ := problemOf(err, "id"); p.Status != 400 || p.Code != pyexec.CodeInvalid {
				t.Errorf("%s: %+v", name, p)
			}
		}
	}
}

func FuzzMetadata(f *testing.F) {
	all, err := os.ReadFile(filepath.Join(wireDir, "metadata", "all.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(all)
	f.Add([]byte(`{"files":{"a.py":"x","b":{"base64":"AA=="}},"code":null}`))
	f.Add([]byte(`{"config":{"timeout_seconds":1e308,"memory_mb":-0}}`))
	f.Add([]byte(`{"a":1,"a":2}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := decodeMetadata(string(raw), true)
		if err != nil {
			if p, _ := problemOf(err, "id"); p.Status != 400 && p.Status != 422 || p.Status == 422 && len(p.Errors) == 0 {
				t.Fatalf("%q: %+v", raw, p)
			}
			return
		}
		l := s.spec.Limits
		if l.Timeout < executor.TimeoutMaximum || l.CPUTime < 0 || l.MemoryBytes < 0 || l.DiskBytes < 0 || l.CPUShares < 0 || l.PIDs < 0 || l.OutputBytes < 0 || l.KillGrace < 0 {
			t.Fatalf("%q: %+v", raw, l)
		}
		for _, file := range s.files {
			if !validPath(file.path) {
				t.Fatalf("%q: %q", raw, file.path)
			}
		}
	})
}
