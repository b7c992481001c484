package httpfrontend

import (
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/frontends/http/apijson"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// inline is a huma.Registry that puts the schema of a struct where the struct is used. Only the structs that have a schema of
// their own in the description are references.
type inline struct{ huma.Registry }

// Schema implements huma.Registry. Answers leave room for members that later versions add, and an empty list is no null.
func (r inline) Schema(t reflect.Type, _ bool, _ string) *huma.Schema {
	switch t {
	case reflect.TypeFor[pyexec.Execution](): // a list has no output
		return ref("ExecutionSummary")
	case reflect.TypeFor[*pyexec.Execution](): // that of a case has
		return &huma.Schema{OneOf: []*huma.Schema{ref("Result"), {Type: "null"}}}
	case reflect.TypeFor[pyexec.Session]():
		return ref("Session")
	case reflect.TypeFor[pyexec.File]():
		return ref("File")
	case reflect.TypeFor[pyexec.DisplayForm]():
		t = reflect.TypeFor[pyexec.DisplayFormJSON]()
	}
	return r.of(t)
}

// of returns the schema of t itself.
func (r inline) of(t reflect.Type) *huma.Schema {
	s := huma.SchemaFromType(r, t)
	switch {
	case s.Type == huma.TypeArray:
		s.Nullable = false
	case s.Properties != nil:
		s.AdditionalProperties = nil
	}
	for _, p := range s.Properties {
		if p.Nullable && p.Enum != nil && !slices.Contains(p.Enum, nil) {
			p.Enum = append(p.Enum, nil)
		}
	}
	return s
}

// schemaOf returns the schema of the struct T, which the tags of its fields describe.
func schemaOf[T any](doc string) *huma.Schema {
	s := inline{huma.NewMapRegistry("", huma.DefaultSchemaNamer)}.of(reflect.TypeFor[T]())
	s.Description = doc
	return s
}

// ref returns a reference to a schema of components.
func ref(name string) *huma.Schema { return &huma.Schema{Ref: "#/components/schemas/" + name} }

// components fills the registry with the schemas that have names.
func components(reg huma.Registry, l LimitRange) {
	m := reg.Map()
	m["Metadata"] = requestSchema[pyexec.Spec]("What to run. A value null is an absent value. An unknown field is 422.", l)
	m["ExecRequest"] = requestSchema[execRequest]("The metadata, with code, command or files.", l)
	m["ExecRequest"].AnyOf = []*huma.Schema{{Required: []string{"code"}}, {Required: []string{"files"}}, {Required: []string{"command"}}, {Required: []string{"script"}}}
	m["BatchMetadata"] = requestSchema[pyexec.Batch]("The metadata of a batch: what to run, and for which cases.", l)
	m["BatchRequest"] = requestSchema[batchRequest]("The metadata of a batch, with code, command or files.", l)
	m["BatchRequest"].AnyOf = m["ExecRequest"].AnyOf
	m["BatchRecord"] = &huma.Schema{OneOf: []*huma.Schema{schemaOf[pyexec.CaseResult]("A case that has ended."), schemaOf[batchEnd]("The end of the batch.")}}
	m["Result"] = schemaOf[pyexec.Execution]("An execution with its output: as it ended, or so far. Every member is present. An unknown member is null.")
	m["ExecutionSummary"] = summarySchema()
	m["ExecutionList"] = schemaOf[pyexec.Page]("")
	m["Problem"] = schemaOf[pyexec.Problem]("An error (RFC 9457). code says what kind of error it is. The list of codes is closed.")
	m["Backends"] = schemaOf[apijson.BackendList]("")
	m["Session"] = schemaOf[pyexec.Session]("A sandbox that outlives an execution. Every member is present. An unknown member is null.")
	m["File"] = schemaOf[pyexec.File]("An entry of a work folder.")
	m["SessionRequest"] = requestSchema[pyexec.SessionSpec]("What a session has for its whole life. A value null is an absent value. An unknown field is 422.", l)
	m["RestartRequest"] = requestSchema[pyexec.Restart]("How to restart.", l)
	m["RequirementsRequest"] = requestSchema[pyexec.Requirements]("What to install.", l)
}

// requestSchema returns the schema of the struct T as a request: it takes no unknown fields, and null for what is not required.
func requestSchema[T any](doc string, l LimitRange) *huma.Schema {
	s := schemaOf[T](doc)
	request(s)
	if config := s.Properties["config"]; config != nil {
		l.show(config.Properties)
	}
	return s
}

// request makes a request's schema of that of a struct.
func request(s *huma.Schema) {
	s.AdditionalProperties = false
	if env := s.Properties["env"]; env != nil {
		env.AdditionalProperties = &huma.Schema{Type: huma.TypeString, Nullable: true, Pattern: noNUL}
		env.Extensions = map[string]any{"propertyNames": map[string]any{"pattern": envName.String()}}
	}
	for name, p := range s.Properties {
		p.Nullable = !slices.Contains(s.Required, name)
		p.PatternDescription = ""
		if p.Items != nil {
			p.Items.PatternDescription = ""
		}
		if p.Nullable && p.Enum != nil {
			p.Enum = append(p.Enum, nil)
		}
		if p.Properties != nil {
			request(p)
		}
		if p.Items != nil && p.Items.Properties != nil {
			request(p.Items)
		}
	}
}

// maxima returns the maximum of each limit by its name in requests; 0: none.
func (l LimitRange) maxima() map[string]float64 { return named(l.Max) }

// named returns limits by their names in requests, in the units of requests.
func named(l executor.Limits) map[string]float64 {
	const mb = 1 << 20
	return map[string]float64{
		"timeout_seconds": l.Timeout.Seconds(), "cpu_seconds": l.CPUTime.Seconds(), "memory_mb": float64(l.MemoryBytes / mb), "disk_mb": float64(l.DiskBytes / mb),
		"cpu_shares": float64(l.CPUShares), "pids": float64(l.PIDs), "output_bytes": float64(l.OutputBytes), "kill_grace_seconds": l.KillGrace.Seconds(),
	}
}

// show sets the server's own defaults and maxima in the properties of the limits.
func (l LimitRange) show(limits map[string]*huma.Schema) {
	maxima := l.maxima()
	for name, byDefault := range named(l.Default) {
		limits[name].Default, limits[name].Maximum = byDefault, nil
		if byDefault == 0 { // none
			limits[name].Default = nil
		}
		if max := maxima[name]; max > 0 {
			limits[name].Maximum = &max
		}
	}
}

// bind lets the errors of shapes name the server's own maxima.
func (l LimitRange) bind(all ...shape) {
	for _, s := range all {
		config := s["config"]
		if config == nil {
			continue
		}
		for name, max := range l.maxima() {
			if r := config.fields[name]; r != nil {
				r.most = max
			}
		}
	}
}

// summarySchema returns the schema of a Result without the members that are tagged as its output.
func summarySchema() *huma.Schema {
	s := schemaOf[pyexec.Execution]("A Result without the output.")
	for _, f := range reflect.VisibleFields(reflect.TypeFor[pyexec.Execution]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); f.Tag.Get("part") == "output" {
			delete(s.Properties, name)
			s.Required = slices.DeleteFunc(s.Required, func(r string) bool { return r == name })
		}
	}
	return s
}

func typed(kind, doc string) *huma.Schema { return &huma.Schema{Type: kind, Description: doc} }
