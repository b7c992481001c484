package httpfrontend

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/python-executor/python-executor/core/executor"
)

// submission is what metadata says.
type submission struct {
	spec executor.Spec
	// stdin is nil when it was not given.
	stdin *string
	// files are those of a JSON body, in the order of the body; nil when there were none.
	files []file
	// session holds what only the opening of a Session says, wipe what its restart does.
	session executor.Session
	wipe    bool
}

// field is one key of the metadata: how it is documented and how it is read, in one place, so that the two agree.
type field struct {
	name   string
	schema *huma.Schema
	// read takes a value that is not null.
	read func(d *decoder, s *submission, path string, raw json.RawMessage)
}

const (
	// noNUL is what every string must match that becomes an argument, a name or a variable.
	noNUL = `^[^\x00]*$`
	// maxSeconds keeps a number of seconds within time.Duration; the Engine knows the real maxima.
	maxSeconds = 1 << 32
	// maxUnits keeps megabytes within int64 as bytes.
	maxUnits  = 1 << 42
	minSample = 0.01
)

var (
	versionPattern = regexp.MustCompile(`^([0-9]+\.[0-9]+)?$`)
	envNamePattern = regexp.MustCompile(`^[^=\x00]+$`)
)

// metadataFields are the keys of the metadata, in the order of the documentation.
func metadataFields(l LimitRange) []field {
	sp := func(get func(*executor.Spec) *string) func(*submission) *string {
		return func(s *submission) *string { return get(&s.spec) }
	}
	return []field{
		text("entrypoint", "Path of the file to run, relative to the root of the tar. Default: main.py, else __main__.py, else the first regular .py file in archive order. A file whose suffix says that it is no program (.ipynb, .txt, .json) is refused.", noNUL,
			sp(func(s *executor.Spec) *string { return &s.Entrypoint })),
		text("docker_image", "Container image, \"python:3.12-slim\". A backend without images may map some and refuses the others with 501.", noNUL,
			sp(func(s *executor.Spec) *string { return &s.Image })),
		text("requirements_txt", "Requirements in the form of a requirements.txt. Default: what the entrypoint's PEP 723 block says, else a requirements.txt (see detect).", "",
			sp(func(s *executor.Spec) *string { return &s.Requirements })),
		list("pre_commands", "Shell commands that prepare the image.", func(s *submission) *[]string { return &s.spec.PreCommands }),
		{"stdin", stringSchema("The program's standard input; empty and closed by default. Not together with a part stdin.", ""),
			func(d *decoder, s *submission, path string, raw json.RawMessage) {
				if v, ok := d.text(path, raw); ok {
					s.stdin = &v
				}
			}},
		configField(l),
		list("args", "Arguments, appended to the program's.", func(s *submission) *[]string { return &s.spec.Args }),
		envField(),
		{"python_version", stringSchema("Exact minor version, \"3.12\". Default: the backend's.", versionPattern.String()),
			func(d *decoder, s *submission, path string, raw json.RawMessage) {
				if v, ok := d.text(path, raw); ok && !versionPattern.MatchString(v) {
					d.bad(path, "must be a minor version such as 3.12 (got %.40q)", v)
				} else {
					s.spec.PythonVersion = v
				}
			}},
		text("code", "Text of a program; it runs as main.py. Not together with command.", "",
			sp(func(s *executor.Spec) *string { return &s.Code })),
		list("command", "An argv to run instead of an entrypoint; its first element is looked up on PATH. Not together with code.",
			func(s *submission) *[]string { return &s.spec.Command }),
		list("outputs", "Globs (** too) of files in the work folder to keep as artifacts.", func(s *submission) *[]string { return &s.spec.Outputs }),
		toggle("outputs_changed", "Also keep every regular file that is new or changed since the program started.", func(s *submission) *bool { return &s.spec.OutputsChanged }),
		toggle("files_changed", "Only in a Session: name the files that were made or changed, and copy none.", func(s *submission) *bool { return &s.spec.FilesChanged }),
		text("backend", "Name of the backend. Default: the server's.", noNUL, sp(func(s *executor.Spec) *string { return &s.Backend })),
		{"detect", &huma.Schema{Type: huma.TypeBoolean, Nullable: true, Description: "Whether the server looks into the tar for requirements. Default: only into code and files of a JSON body; true: also into a tar, which is then kept on the server's disk until it is read; false: never."},
			func(d *decoder, s *submission, path string, raw json.RawMessage) {
				if v, ok := d.boolean(path, raw); ok {
					s.spec.Detect = &v
				}
			}},
		{"idempotency_key", &huma.Schema{Type: huma.TypeString, Nullable: true, MaxLength: new(255), Pattern: noNUL, Description: "The same owner, key and Spec return the first Execution; another Spec under the same key is 409. At most 255 bytes."},
			func(d *decoder, s *submission, path string, raw json.RawMessage) {
				v, ok := d.plain(path, raw)
				if ok && len(v) > 255 {
					d.bad(path, "must have at most 255 bytes (got %d)", len(v))
				}
				s.spec.IdempotencyKey = v
			}},
		enum("language", "Language of code or entrypoint. Default python.", func(s *submission) *executor.Language { return &s.spec.Language },
			executor.LanguagePython, executor.LanguageJavaScript, executor.LanguageShell),
		enum("interpreter", "environment: one that has the requirements, managed by the backend (default). system: the place's own python3.",
			func(s *submission) *executor.Interpreter { return &s.spec.Interpreter }, executor.InterpreterEnvironment, executor.InterpreterSystem),
		text("session_id", "Session to run in (\"ctx-…\"). Default: a sandbox of its own.", noNUL, sp(func(s *executor.Spec) *string { return &s.Session })),
		toggle("durable", "Be accepted only when Spec and tar are on the server's disk. Always so for async.", func(s *submission) *bool { return &s.spec.Durable }),
		sampleField(),
		text("script", "Path of an allow-listed script of the host. Needs the scope scripts.", noNUL, sp(func(s *executor.Spec) *string { return &s.Script })),
		text("host_directory", "Folder of the host to run in. Needs the scope trusted.", noNUL, sp(func(s *executor.Spec) *string { return &s.HostDirectory })),
	}
}

func stringSchema(doc, pattern string) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Nullable: true, Description: doc, Pattern: pattern}
}

// text is a string field. pattern is "" or noNUL.
func text(name, doc, pattern string, get func(*submission) *string) field {
	return field{name, stringSchema(doc, pattern), func(d *decoder, s *submission, path string, raw json.RawMessage) {
		read := d.text
		if pattern != "" {
			read = d.plain
		}
		if v, ok := read(path, raw); ok {
			*get(s) = v
		}
	}}
}

func list(name, doc string, get func(*submission) *[]string) field {
	schema := &huma.Schema{Type: huma.TypeArray, Nullable: true, Description: doc, Items: &huma.Schema{Type: huma.TypeString, Pattern: noNUL}}
	return field{name, schema, func(d *decoder, s *submission, path string, raw json.RawMessage) {
		*get(s) = d.list(path, raw)
	}}
}

func toggle(name, doc string, get func(*submission) *bool) field {
	schema := &huma.Schema{Type: huma.TypeBoolean, Nullable: true, Description: doc}
	return field{name, schema, func(d *decoder, s *submission, path string, raw json.RawMessage) {
		if v, ok := d.boolean(path, raw); ok {
			*get(s) = v
		}
	}}
}

func enum[T ~string](name, doc string, get func(*submission) *T, values ...T) field {
	schema := &huma.Schema{Type: huma.TypeString, Nullable: true, Description: doc}
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = string(v)
		schema.Enum = append(schema.Enum, string(v))
	}
	schema.Enum = append(schema.Enum, nil)
	return field{name, schema, func(d *decoder, s *submission, path string, raw json.RawMessage) {
		v, ok := d.text(path, raw)
		if !ok {
			return
		}
		for _, known := range values {
			if v == string(known) {
				*get(s) = known
				return
			}
		}
		d.bad(path, "must be one of %s (got %.40q)", strings.Join(names, ", "), v)
	}}
}

func envField() field {
	schema := &huma.Schema{Type: huma.TypeObject, Nullable: true, AdditionalProperties: &huma.Schema{Type: huma.TypeString, Nullable: true, Pattern: noNUL},
		Extensions:  map[string]any{"propertyNames": map[string]any{"pattern": envNamePattern.String()}},
		Description: "Environment variables, added to the program's own (PATH, HOME, TMPDIR, LANG, PYTHONUNBUFFERED). An empty PYTHONUNBUFFERED removes it."}
	return field{"env", schema, func(d *decoder, s *submission, path string, raw json.RawMessage) {
		d.object(path, raw, func(name, at string, raw json.RawMessage) {
			if !envNamePattern.MatchString(name) {
				d.bad(at, "is not a name of an environment variable")
				return
			}
			if isNull(raw) {
				return
			}
			if v, ok := d.plain(at, raw); ok {
				if s.spec.Env == nil {
					s.spec.Env = map[string]string{}
				}
				s.spec.Env[name] = v
			}
		})
	}}
}

func sampleField() field {
	schema := &huma.Schema{Type: huma.TypeNumber, Nullable: true, Minimum: new(minSample), Maximum: new(float64(maxSeconds)),
		Description: "Sample the program's memory use at this interval, at least 0.01; the Result then has memory_samples. Default: not sampled."}
	return field{"sample_interval_seconds", schema, func(d *decoder, s *submission, path string, raw json.RawMessage) {
		v, ok := d.number(path, raw)
		switch {
		case !ok:
		case v < minSample || v > maxSeconds:
			d.bad(path, "must be at least %g and at most %d (got %g)", minSample, int64(maxSeconds), v)
		default:
			s.spec.SampleInterval = duration(v)
		}
	}}
}

// duration turns seconds into a Duration and never a positive number into zero, which means "not asked for".
func duration(seconds float64) time.Duration {
	return max(1, time.Duration(math.Round(seconds*float64(time.Second))))
}

// configField is the object of the limits.
func configField(l LimitRange) field {
	fields := []field{
		{"timeout_seconds", &huma.Schema{Type: huma.TypeNumber, Minimum: new(0.0), Maximum: new(l.Max.Timeout.Seconds()), Default: l.Default.Timeout.Seconds(),
			Description: "Wall time from the program's start; queueing and installing do not count. 0 = the server's maximum."},
			func(d *decoder, s *submission, path string, raw json.RawMessage) {
				v, ok := d.number(path, raw)
				switch {
				case !ok:
				case v == 0:
					s.spec.Limits.Timeout = executor.TimeoutMaximum
				case v < 0 || v > maxSeconds:
					d.bad(path, "must be at least 0 and at most %d (got %g)", int64(maxSeconds), v)
				default:
					s.spec.Limits.Timeout = duration(v)
				}
			}},
		{"network_disabled", &huma.Schema{Type: huma.TypeBoolean, Default: true, Description: "true: no network but the program's own loopback, or 501. false: a network. Default: off where the backend can enforce it."},
			func(d *decoder, s *submission, path string, raw json.RawMessage) {
				switch v, ok := d.boolean(path, raw); {
				case ok && v:
					s.spec.Network = executor.NetworkOff
				case ok:
					s.spec.Network = executor.NetworkOn
				}
			}},
		whole("memory_mb", "Memory of all the program's processes together, in MB of 2^20 bytes.", 1<<20, l.Default.MemoryBytes, l.Max.MemoryBytes,
			func(s *submission) *int64 { return &s.spec.Limits.MemoryBytes }),
		whole("disk_mb", "What the work folder may hold, uploaded files included, in MB of 2^20 bytes.", 1<<20, l.Default.DiskBytes, l.Max.DiskBytes,
			func(s *submission) *int64 { return &s.spec.Limits.DiskBytes }),
		whole("cpu_shares", "Relative weight when the CPU is contended; 1024 is one share.", 1, l.Default.CPUShares, l.Max.CPUShares,
			func(s *submission) *int64 { return &s.spec.Limits.CPUShares }),
		whole("pids", "Processes and threads alive at once.", 1, l.Default.PIDs, l.Max.PIDs,
			func(s *submission) *int64 { return &s.spec.Limits.PIDs }),
		whole("output_bytes", "What is kept of each output stream; beyond it bytes are counted, not kept.", 1, l.Default.OutputBytes, l.Max.OutputBytes,
			func(s *submission) *int64 { return &s.spec.Limits.OutputBytes }),
		{"kill_grace_seconds", &huma.Schema{Type: huma.TypeNumber, ExclusiveMinimum: new(0.0), Maximum: new(l.Max.KillGrace.Seconds()), Default: l.Default.KillGrace.Seconds(),
			Description: "Time between SIGTERM and SIGKILL when the program is stopped."},
			func(d *decoder, s *submission, path string, raw json.RawMessage) {
				v, ok := d.number(path, raw)
				switch {
				case !ok:
				case v <= 0 || v > maxSeconds:
					d.bad(path, "must be more than 0 and at most %d (got %g)", int64(maxSeconds), v)
				default:
					s.spec.Limits.KillGrace = duration(v)
				}
			}},
	}
	schema := objectSchema(fields)
	schema.Nullable = true
	schema.Description = "Limits. What is not given is the server's default; more than the server's maximum is 422."
	known := byName(fields)
	return field{"config", schema, func(d *decoder, s *submission, path string, raw json.RawMessage) {
		d.fields(path, raw, known, s)
	}}
}

// whole is an integer limit > 0 in units of unit bytes (or things).
func whole(name, doc string, unit, byDefault, most int64, get func(*submission) *int64) field {
	schema := &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: new(1.0), Default: byDefault / unit, Description: doc}
	if most > 0 {
		schema.Maximum = new(float64(most / unit))
	}
	return field{name, schema, func(d *decoder, s *submission, path string, raw json.RawMessage) {
		v, ok := d.integer(path, raw)
		switch {
		case !ok:
		case v <= 0 || v > maxUnits:
			d.bad(path, "must be more than 0 and at most %d (got %d)", int64(maxUnits), v)
		default:
			*get(s) = v * unit
		}
	}}
}

// objectSchema is the schema of an object with these fields and no others.
func objectSchema(fields []field) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeObject, AdditionalProperties: false, Properties: map[string]*huma.Schema{}}
	for _, f := range fields {
		f.schema.Nullable = true
		s.Properties[f.name] = f.schema
	}
	return s
}

func byName(fields []field) map[string]field {
	m := make(map[string]field, len(fields))
	for _, f := range fields {
		if _, twice := m[f.name]; twice {
			panic(fmt.Sprintf("field %s is there twice", f.name))
		}
		m[f.name] = f
	}
	return m
}
