package httpfrontend

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/python-executor/python-executor/core/executor"
)

// sessionFields are the keys of the request to open a Session: those of the metadata that are fixed for its life, and its
// own.
func sessionFields(l LimitRange) []field {
	fields := []field{
		text("name", "A name for people; it need not be unique.", noNUL, func(s *submission) *string { return &s.session.Name }),
		text("description", "What it is for.", noNUL, func(s *submission) *string { return &s.session.Description }),
		enum("language", "Language of its interpreter. Default python.", func(s *submission) *executor.Language { return &s.spec.Language },
			executor.LanguagePython, executor.LanguageJavaScript, executor.LanguageShell),
		secondsField("idle_timeout_seconds", "Close it when it was not used for so long. Default and maximum: the server's.", func(s *submission) *time.Duration { return &s.session.IdleTimeout }),
		secondsField("max_life_seconds", "Close it then, whatever happens. Default and maximum: the server's.", func(s *submission) *time.Duration { return &s.session.MaxLife }),
	}
	shared := []string{"python_version", "docker_image", "requirements_txt", "pre_commands", "env", "config", "backend"}
	for _, f := range metadataFields(l) {
		if slices.Contains(shared, f.name) {
			fields = append(fields, f)
		}
	}
	return fields
}

// restartFields are the keys of the request to restart a Session.
func restartFields() []field {
	return []field{toggle("wipe", "Also remove its files. Default: they stay.", func(s *submission) *bool { return &s.wipe })}
}

// requirementsFields are the keys of the request for more requirements.
func requirementsFields() []field {
	return []field{text("requirements_txt", "What to install besides what it has, in the form of a requirements.txt.", noNUL,
		func(s *submission) *string { return &s.spec.Requirements })}
}

// secondsField is a time that may be left out.
func secondsField(name, doc string, get func(*submission) *time.Duration) field {
	schema := &huma.Schema{Type: huma.TypeNumber, Nullable: true, ExclusiveMinimum: new(0.0), Maximum: new(float64(maxSeconds)), Description: doc}
	return field{name, schema, func(d *decoder, s *submission, path string, raw json.RawMessage) {
		v, ok := d.number(path, raw)
		switch {
		case !ok:
		case v <= 0 || v > maxSeconds:
			d.bad(path, "must be more than 0 and at most %d (got %g)", int64(maxSeconds), v)
		default:
			*get(s) = duration(v)
		}
	}}
}
