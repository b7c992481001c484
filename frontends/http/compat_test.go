package httpfrontend

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// openapi.released.json is the document of the last release. What a client of that release sends must still be taken, and
// what it reads must still be there; only additions are compatible.
func TestTheDescriptionIsCompatibleWithTheLastRelease(t *testing.T) {
	read := func(name string) any {
		t.Helper()
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, problem := range breaking(read("openapi.released.json"), read("openapi.json")) {
		t.Error(problem)
	}
}

func TestBreakingChangesAreFound(t *testing.T) {
	const base = `{"components":{"schemas":{"a":{"required":[]},"b":{"required":[]}}},"paths":{"/a":{"post":{"parameters":[{"name":"q"}],"requestBody":{"r":{"$ref":"#/components/schemas/a"},"x":{"type":"object","required":["k"],"properties":{"k":{"type":"string"},"l":{"type":"integer","default":1}}}},"responses":{"200":{"y":{"properties":{"r":{"type":"string"}}}}}}}}}`
	tests := map[string]struct {
		old, new string
		found    bool
	}{
		"nothing changed":                              {`"q"`, `"q"`, false},
		"a field added":                                {`"l":`, `"m":{"type":"string"},"l":`, false},
		"a path gone":                                  {`"/a"`, `"/b"`, true},
		"a method gone":                                {`"post"`, `"put"`, true},
		"a status gone":                                {`"200"`, `"201"`, true},
		"a response field gone":                        {`"r"`, `"s"`, true},
		"a request field gone":                         {`"l":`, `"m":`, true},
		"a type changed":                               {`"integer"`, `"string"`, true},
		"a default changed":                            {`"default":1`, `"default":2`, true},
		"a newly bounded field":                        {`"type":"integer"`, `"type":"integer","maximum":9`, true},
		"a bound of an answer":                         {`"r":{"type":"string"`, `"r":{"type":"string","maxLength":9`, false},
		"a newly required field":                       {`["k"]`, `["k","l"]`, true},
		"a parameter gone":                             {`"name":"q"`, `"name":"p"`, true},
		"no longer required is ok":                     {`["k"]`, `[]`, false},
		"a field of a request's schema newly required": {`"a":{"required":[]}`, `"a":{"required":["n"]}`, true},
		"a field of an answer's schema newly promised": {`"b":{"required":[]}`, `"b":{"required":["n"]}`, false},
	}
	var before any
	if err := json.Unmarshal([]byte(base), &before); err != nil {
		t.Fatal(err)
	}
	for name, test := range tests {
		var after any
		if err := json.Unmarshal([]byte(strings.Replace(base, test.old, test.new, 1)), &after); err != nil {
			t.Fatal(err)
		}
		if problems := breaking(before, after); (len(problems) > 0) != test.found {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

// breaking compares two documents as trees. Every path, method, status, property, parameter, type, bound, default and enum of
// before must be in after. A request must not have new required fields or bounds; an answer may have more of both.
func breaking(before, after any) []string {
	var problems []string
	asked := askedSchemas(before)
	ofAnAnswer := func(where string) bool {
		if rest, ok := strings.CutPrefix(where, "/components/schemas/"); ok {
			name, _, _ := strings.Cut(rest, "/")
			return !asked[name]
		}
		return strings.Contains(where, "/responses/")
	}
	var walk func(where string, a, b any)
	walk = func(where string, a, b any) {
		switch a := a.(type) {
		case map[string]any:
			b, ok := b.(map[string]any)
			if !ok {
				problems = append(problems, where+" is gone")
				return
			}
			for key, value := range a {
				switch key {
				case "description", "summary", "title", "example", "examples", "version", "info", "operationId", "tags", "links":
				case "required":
				default:
					walk(where+"/"+key, value, b[key])
				}
			}
			for _, bound := range []string{"minimum", "maximum", "exclusiveMinimum", "maxLength", "pattern", "enum"} {
				if a["type"] != nil && a[bound] == nil && b[bound] != nil && !ofAnAnswer(where) {
					problems = append(problems, fmt.Sprintf("%s newly has the %s %v", where, bound, b[bound]))
				}
			}
			for _, name := range names(b["required"]) {
				if !slices.Contains(names(a["required"]), name) && !ofAnAnswer(where) {
					problems = append(problems, where+" newly requires "+name)
				}
			}
		case []any:
			b, _ := b.([]any)
			for _, item := range a {
				if !slices.ContainsFunc(b, func(other any) bool { return identity(item) == identity(other) }) {
					problems = append(problems, fmt.Sprintf("%s no longer has %s", where, identity(item)))
				}
			}
		default:
			if fmt.Sprint(a) != fmt.Sprint(b) {
				problems = append(problems, fmt.Sprintf("%s was %v and is %v", where, a, b))
			}
		}
	}
	walk("", before, after)
	return problems
}

// askedSchemas names the schemas that a request is made of.
func askedSchemas(document any) map[string]bool {
	asked := map[string]bool{}
	var walk func(v any, inside bool)
	walk = func(v any, inside bool) {
		switch v := v.(type) {
		case map[string]any:
			for key, value := range v {
				if name, ok := strings.CutPrefix(fmt.Sprint(value), "#/components/schemas/"); ok && inside && key == "$ref" {
					asked[name] = true
				}
				walk(value, inside || key == "requestBody" || key == "parameters")
			}
		case []any:
			for _, item := range v {
				walk(item, inside)
			}
		}
	}
	walk(document, false)
	return asked
}

// identity is what makes an item of a list the same item: a parameter's name, else all of it.
func identity(item any) string {
	if m, ok := item.(map[string]any); ok && m["name"] != nil {
		return fmt.Sprint(m["name"])
	}
	b, err := json.Marshal(item)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func names(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, item := range list {
		if s, ok := item.(string); ok {
			out = append(out, s)
		}
	}
	return out
}
