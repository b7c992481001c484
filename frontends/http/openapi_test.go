package httpfrontend

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

var update = flag.Bool("update", false, "write openapi.json")

// description returns the API description of a server with the documented limits.
func description(t *testing.T) []byte {
	t.Helper()
	h := handlerOf(t, hello().service())
	w := do(t, h, http.MethodGet, "/openapi.json", nil)
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	return w.Body.Bytes()
}

func TestTheCheckedInDescriptionIsTheServers(t *testing.T) {
	t.Parallel()
	var indented bytes.Buffer
	if err := json.Indent(&indented, description(t), "", "  "); err != nil {
		t.Fatal(err)
	}
	indented.WriteByte('\n')
	if *update {
		if err := os.WriteFile("openapi.json", indented.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	checkedIn, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(checkedIn, indented.Bytes()) {
		t.Fatal("openapi.json is not what the server says; go test ./frontends/http -run Description -update writes it")
	}
}

func TestTheDescriptionIsWhole(t *testing.T) {
	t.Parallel()
	doc := decode(t, description(t))
	if doc["openapi"] != "3.1.0" {
		t.Fatalf("openapi %v", doc["openapi"])
	}
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	for _, m := range regexp.MustCompile(`"#/components/schemas/([^"]+)"`).FindAllStringSubmatch(string(description(t)), -1) {
		if schemas[m[1]] == nil {
			t.Errorf("there is no schema %s", m[1])
		}
	}
	params := regexp.MustCompile(`\{([a-z]+)\}`)
	ids := map[string]bool{}
	for path, item := range doc["paths"].(map[string]any) {
		for method, raw := range item.(map[string]any) {
			op := raw.(map[string]any)
			id := op["operationId"].(string)
			if ids[id] || op["summary"] == "" {
				t.Errorf("%s %s: id %q", method, path, id)
			}
			ids[id] = true
			declared := map[string]bool{}
			list, _ := op["parameters"].([]any)
			for _, p := range list {
				p := p.(map[string]any)
				if p["in"] == "path" {
					declared[p["name"].(string)] = true
				}
			}
			for _, m := range params.FindAllStringSubmatch(path, -1) {
				if !declared[m[1]] {
					t.Errorf("%s %s: parameter %s is not described", method, path, m[1])
				}
			}
			for status, r := range op["responses"].(map[string]any) {
				r := r.(map[string]any)
				if n, err := strconv.Atoi(status); err != nil || n < 200 || r["description"] == "" {
					t.Errorf("%s %s: response %s", method, path, status)
				}
				if status >= "400" && r["content"].(map[string]any)["application/problem+json"] == nil {
					t.Errorf("%s %s: %s is no problem", method, path, status)
				}
			}
		}
	}
}

// TestTheEnumsAreThoseOfTheContract compares the enum tags of sdk/go, which cannot import the contract, with the contract.
func TestTheEnumsAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	texts := func(list any) []any {
		v := reflect.ValueOf(list)
		out := make([]any, v.Len())
		for i := range out {
			out[i] = v.Index(i).String()
		}
		return out
	}
	result, session := schemaOf[pyexec.Execution]("").Properties, schemaOf[pyexec.Session]("").Properties
	for name, c := range map[string]struct {
		enum []any
		want any
	}{
		"status":           {result["status"].Enum, executor.Statuses()},
		"cancelled":        {schemaOf[pyexec.Cancelled]("").Properties["status"].Enum, executor.Statuses()},
		"code":             {schemaOf[pyexec.Problem]("").Properties["code"].Enum, executor.Codes()},
		"code of a result": {result["error"].Properties["code"].Enum, executor.Codes()},
		"session":          {session["status"].Enum, []executor.SessionStatus{executor.SessionActive, executor.SessionLost, executor.SessionClosed}},
		"closed":           {schemaOf[pyexec.Closed]("").Properties["status"].Enum, []executor.SessionStatus{executor.SessionActive, executor.SessionLost, executor.SessionClosed}},
		"language":         {session["language"].Enum, []executor.Language{executor.LanguagePython, executor.LanguageJavaScript, executor.LanguageShell}},
	} {
		if !slices.Equal(c.enum, texts(c.want)) {
			t.Errorf("%s: %v, want %v", name, c.enum, c.want)
		}
	}
	if got := result["session_state"].Enum; !slices.Equal(got, []any{"kept", string(executor.SessionStateRestarted), string(executor.SessionStateLost), nil}) {
		t.Errorf("session_state: %v", got)
	}
}

// TestEveryAnswerIsDescribed sends each operation what it may be sent and checks that each status is one of its own.
func TestEveryAnswerIsDescribed(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, hello().service())
	targets := []string{testID, "exe_unknown", "%00"}
	for _, r := range h.routes() {
		described := r.huma().Responses
		for _, id := range targets {
			for _, query := range []string{"", "?limit=0&status=x&stream=x&after=x", "?after=exe_1&limit=1"} {
				for _, contentType := range []string{"", "application/json", "multipart/form-data; boundary=b", "text/plain"} {
					for _, body := range []string{"", "{}", `{"code":"x"}`, `{"x":1}`, "--b--"} {
						path := strings.NewReplacer("{id}", id, "{path}", "none").Replace(r.path) + query
						w := do(t, h, r.method, path, strings.NewReader(body), "Content-Type", contentType)
						if described[strconv.Itoa(w.Code)] == nil {
							t.Fatalf("%s %s answers %d: %s", r.method, path, w.Code, w.Body)
						}
					}
				}
			}
		}
	}
}

// TestRefusedBodiesAreDescribed sends each operation a JSON body while other bodies use up http.max_buffered_bytes.
func TestRefusedBodiesAreDescribed(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, hello().service(), func(o *Options) { o.MaxBufferedBytes = 1 << 20 })
	release := useUp(t, h)
	defer release()
	count := 0
	for _, r := range h.routes() {
		if r.body == nil || r.body.Content["application/json"] == nil {
			continue
		}
		path := strings.NewReplacer("{id}", testID, "{path}", "none").Replace(r.path)
		w := do(t, h, r.method, path, strings.NewReader("{}"+strings.Repeat(" ", 600<<10)), "Content-Type", "application/json")
		if w.Code == http.StatusRequestEntityTooLarge {
			continue // its bodies are small
		}
		described := r.huma().Responses["503"]
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || described == nil ||
			described.Headers["Retry-After"] == nil || !strings.Contains(described.Description, "http.max_buffered_bytes") {
			t.Errorf("%s %s: %d, described as %+v", r.method, r.path, w.Code, described)
		}
		count++
	}
	if count < 4 {
		t.Errorf("%d operations hold bodies in memory", count)
	}
}

func TestTheDescriptionShowsTheServersLimits(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, hello().service(), func(o *Options) { o.Limits.Max.MemoryBytes = 7 << 20; o.Limits.Default.PIDs = 3 })
	if !strings.Contains(string(h.description), `"maximum":7,`) || !strings.Contains(string(h.description), `"default":3,`) {
		t.Fatal("they are not there")
	}
}
