package httpfrontend

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/python-executor/python-executor/core/executor"
)

// prop is a property of a response's schema. Every one is required: what is unknown is null.
type prop struct {
	name     string
	schema   *huma.Schema
	optional bool
}

// object is the schema of an answer. It promises what is named and leaves room for what later versions add.
func object(doc string, props ...prop) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeObject, Description: doc, Properties: map[string]*huma.Schema{}}
	for _, p := range props {
		s.Properties[p.name] = p.schema
		if !p.optional {
			s.Required = append(s.Required, p.name)
		}
	}
	return s
}

func typed(kind, doc string) *huma.Schema { return &huma.Schema{Type: kind, Description: doc} }

func nullable(s *huma.Schema) *huma.Schema {
	s.Nullable = true
	return s
}

func array(items *huma.Schema, doc string) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, Items: items, Description: doc}
}

func ref(name string) *huma.Schema { return &huma.Schema{Ref: "#/components/schemas/" + name} }

func formatted(kind, format, doc string) *huma.Schema {
	return &huma.Schema{Type: kind, Format: format, Description: doc}
}

func oneOf[T ~string](doc string, values []T) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString, Description: doc}
	for _, v := range values {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}

// resultProps are the members of a Result; without the output those of a summary.
func resultProps(withOutput bool) []prop {
	str, integer, number, boolean := huma.TypeString, huma.TypeInteger, huma.TypeNumber, huma.TypeBoolean
	props := []prop{
		{name: "execution_id", schema: typed(str, "The Execution's id, \"exe_…\".")},
		{name: "session_id", schema: nullable(typed(str, "The Session it runs or ran in; null: a sandbox of its own."))},
		{name: "status", schema: oneOf("queued and running are not final, the others are.", executor.Statuses())},
		{name: "exit_code", schema: nullable(typed(integer, "The program's exit code; null while it runs, if it ended by a signal, or never ran."))},
		{name: "signal", schema: nullable(typed(str, "Name of the signal that ended it, \"SIGKILL\"."))},
	}
	if withOutput {
		props = append(props,
			prop{name: "stdout", schema: typed(str, "Standard output (so far). What is not UTF-8 stands as U+FFFD.")},
			prop{name: "stderr", schema: typed(str, "Standard error (so far). What is not UTF-8 stands as U+FFFD.")},
			prop{name: "stdout_base64", schema: nullable(&huma.Schema{Type: str, ContentEncoding: "base64", Description: "The bytes of stdout where they are not UTF-8, else null."})},
			prop{name: "stderr_base64", schema: nullable(&huma.Schema{Type: str, ContentEncoding: "base64", Description: "The bytes of stderr where they are not UTF-8, else null."})},
			prop{name: "displays", schema: array(displaySchema(), "What the code displayed (so far), in order, each value in all its forms; at most 8 MiB of forms. The events have more.")},
			prop{name: "displays_truncated", schema: typed(boolean, "Forms are missing in displays, or were cut before.")},
		)
	}
	return append(props,
		prop{name: "stdout_bytes", schema: formatted(integer, "int64", "All bytes written, kept or not.")},
		prop{name: "stderr_bytes", schema: formatted(integer, "int64", "All bytes written, kept or not.")},
		prop{name: "stdout_truncated", schema: typed(boolean, "output_bytes cut the stream.")},
		prop{name: "stderr_truncated", schema: typed(boolean, "output_bytes cut the stream.")},
		prop{name: "displays_dropped", schema: formatted(integer, "int64", "How many displayed values were too many, and are nowhere.")},
		prop{name: "session_state", schema: nullable(&huma.Schema{Type: str, Enum: []any{"kept", "restarted", "lost", nil},
			Description: "What became of the Session's interpreter: kept; restarted, because it did not stop in time (its names are gone, its files are there); lost, because it died. null before the end and without a Session."})},
		prop{name: "attempts", schema: typed(integer, "How often it was started. More than 1: the program may have run more than once.")},
		prop{name: "created_at", schema: nullable(formatted(str, "date-time", "When it was accepted."))},
		prop{name: "started_at", schema: nullable(formatted(str, "date-time", "When the program started."))},
		prop{name: "finished_at", schema: nullable(formatted(str, "date-time", "When it ended."))},
		prop{name: "duration_seconds", schema: nullable(typed(number, "From the program's start to its end; null where it was lost and nobody saw its end."))},
		prop{name: "cpu_seconds", schema: nullable(typed(number, "User and system time of all its processes."))},
		prop{name: "peak_memory_bytes", schema: nullable(formatted(integer, "int64", "The highest memory use of all its processes."))},
		prop{name: "phases", schema: object("How long each phase took.",
			prop{name: "queue_seconds", schema: nullable(typed(number, ""))},
			prop{name: "prepare_seconds", schema: nullable(typed(number, ""))},
			prop{name: "run_seconds", schema: nullable(typed(number, ""))},
			prop{name: "collect_seconds", schema: nullable(typed(number, ""))})},
		prop{name: "backend", schema: nullable(typed(str, "Name of the backend that runs or ran it."))},
		prop{name: "python_version", schema: nullable(typed(str, "The full version that ran, \"3.12.1\"."))},
		prop{name: "resolved_requirements", schema: nullable(array(typed(str, ""), "What was installed, \"requests==2.32.3\"."))},
		prop{name: "artifacts", schema: nullable(array(object("",
			prop{name: "path", schema: typed(str, "Relative to the work folder.")},
			prop{name: "size_bytes", schema: formatted(integer, "int64", "")}), "Files that were kept; null before the end."))},
		prop{name: "error", schema: nullable(object("Why the program did not get to run, or was lost; null otherwise.",
			prop{name: "code", schema: oneOf("", executor.Codes())},
			prop{name: "phase", schema: nullable(typed(str, "queue, prepare, start, run or collect."))},
			prop{name: "message", schema: typed(str, "")}))},
		prop{name: "memory_samples", optional: true, schema: array(object("",
			prop{name: "offset_seconds", schema: typed(number, "Since started_at.")},
			prop{name: "bytes", schema: formatted(integer, "int64", "")}), "Only where sample_interval_seconds asked for them.")},
		prop{name: "files_changed", optional: true, schema: array(object("",
			prop{name: "path", schema: typed(str, "Relative to the work folder.")},
			prop{name: "size_bytes", schema: formatted(integer, "int64", "")}),
			"Only where files_changed asked for them: the files of the Session that were made or changed since the Execution before that asked, without hidden ones, at most 100.")},
		prop{name: "files_omitted", optional: true, schema: formatted(integer, "int64", "How many more than those in files_changed.")},
		prop{name: "image_digest", optional: true, schema: typed(str, "Digest of the image, only on backends with images.")},
	)
}

// displaySchema describes one form of a displayed value.
func displaySchema() *huma.Schema {
	return object("One form of one value. It has data or base64.",
		prop{name: "mime", schema: typed(huma.TypeString, "The form's type, \"image/png\".")},
		prop{name: "data", optional: true, schema: typed(huma.TypeString, "The form, where it is text.")},
		prop{name: "base64", optional: true, schema: &huma.Schema{Type: huma.TypeString, ContentEncoding: "base64", Description: "The form, where it is not text."}},
		prop{name: "value", schema: typed(huma.TypeBoolean, "It is the value of the last expression; else the code displayed it.")},
		prop{name: "display", schema: typed(huma.TypeInteger, "Number of the value, from 0; its forms share it.")},
	)
}

// problemSchema describes every error.
func problemSchema() *huma.Schema {
	str := huma.TypeString
	return object("An error (RFC 9457). code says what kind it is; the list is closed.",
		prop{name: "type", schema: formatted(str, "uri-reference", "Always about:blank.")},
		prop{name: "title", schema: typed(str, "The status in words.")},
		prop{name: "status", schema: typed(huma.TypeInteger, "The HTTP status.")},
		prop{name: "detail", schema: typed(str, "What is wrong.")},
		prop{name: "code", schema: oneOf("unavailable means: the same request may succeed later.", executor.Codes())},
		prop{name: "request_id", schema: typed(str, "Finds the request in the server's log.")},
		prop{name: "execution_id", optional: true, schema: typed(str, "The Execution that the error is about, if there is one.")},
		prop{name: "errors", optional: true, schema: array(object("",
			prop{name: "field", schema: typed(str, "The field as a user writes it, \"config.memory_mb\".")},
			prop{name: "location", schema: typed(str, "The same with the part of the request before it, \"metadata.config.memory_mb\".")},
			prop{name: "message", schema: typed(str, "")}), "Every bad field.")},
	)
}

// backendsSchema describes executor.Info; a test compares its members.
func backendsSchema() *huma.Schema {
	str, boolean := huma.TypeString, huma.TypeBoolean
	flags := []string{"network_off", "network_on", "memory", "disk", "cpu", "pids", "commands", "requirements", "images", "pre_commands", "artifacts",
		"memory_samples", "system_interpreter", "host_directories", "scripts", "sessions", "attach", "local_path"}
	caps := []prop{{name: "isolation", schema: typed(str, "none, namespaces, container or vm.")}}
	for _, name := range flags {
		caps = append(caps, prop{name: name, schema: typed(boolean, "")})
	}
	caps = append(caps, prop{name: "languages", schema: array(typed(str, ""), "")},
		prop{name: "python_versions", schema: array(typed(str, ""), "Exact minor versions, newest first.")})
	info := object("A backend as it is now.",
		prop{name: "name", schema: typed(str, "Its name in the configuration.")},
		prop{name: "type", schema: typed(str, "The implementation.")},
		prop{name: "version", schema: typed(str, "")},
		prop{name: "healthy", schema: typed(boolean, "Work is expected to succeed.")},
		prop{name: "message", optional: true, schema: typed(str, "Why it is not healthy.")},
		prop{name: "capacity", schema: typed(huma.TypeInteger, "How many jobs it can run at once; 0: no bound of its own.")},
		prop{name: "capabilities", schema: object("Promises: what is true is enforced, what is false is refused with 501 when asked for.", caps...)},
		prop{name: "warnings", optional: true, schema: array(typed(str, ""), "Defaults that are not enforced here.")},
		prop{name: "details", optional: true, schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: typed(str, "")}},
		prop{name: "metrics", optional: true, schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: typed(huma.TypeNumber, "")}},
	)
	return object("", prop{name: "backends", schema: array(info, "Every configured backend, the default first.")})
}

// components fills the registry with everything that is named.
func components(reg huma.Registry, l LimitRange) {
	m := reg.Map()
	m["Metadata"] = objectSchema(metadataFields(l))
	m["Metadata"].Nullable = false
	m["Metadata"].Description = "What to run. A value null is an absent one; an unknown key is 422."
	m["ExecRequest"] = objectSchema(append(metadataFields(l), filesField()))
	m["ExecRequest"].Description = "The metadata, with code, command or files."
	m["ExecRequest"].AnyOf = []*huma.Schema{{Required: []string{"code"}}, {Required: []string{"files"}}, {Required: []string{"command"}}, {Required: []string{"script"}}}
	m["Result"] = object("An Execution with its output: as it ended, or so far. Every member is there; what is unknown is null.", resultProps(true)...)
	m["ExecutionSummary"] = object("A Result without the output.", resultProps(false)...)
	m["ExecutionList"] = object("",
		prop{name: "executions", schema: array(ref("ExecutionSummary"), "Newest first.")},
		prop{name: "next", schema: nullable(typed(huma.TypeString, "Give it as after to get the next page; null: this is the last."))})
	m["Problem"] = problemSchema()
	m["Backends"] = backendsSchema()
	sessionComponents(m, l)
}
