package backend

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// Problems collects what is wrong with a configuration or a Spec, by field. The zero value is ready for a Spec.
type Problems struct {
	// Prefix stands before every field, such as "backends.uv.".
	Prefix string
	// Op is the Op of the error.
	Op string

	fields  executor.Problems
	invalid bool
}

// Section returns the Problems of the section backends.<name> of a configuration.
func Section(name string) *Problems { return &Problems{Prefix: "backends." + name + "."} }

// Add records a field whose value is wrong.
func (p *Problems) Add(field, format string, args ...any) {
	p.invalid = true
	p.Refuse(field, format, args...)
}

// Require records a problem of a field unless ok.
func (p *Problems) Require(ok bool, field, format string, args ...any) {
	if !ok {
		p.Add(field, format, args...)
	}
}

// Refuse records a field that asks for something that this backend cannot do or enforce.
func (p *Problems) Refuse(field, format string, args ...any) {
	p.fields.Add(p.Prefix+field, format, args...)
}

// Err returns one error that names every recorded field, sorted; nil if there is none. Its code is invalid if any value is
// wrong, else unimplemented.
func (p *Problems) Err() error {
	fields := slices.Clone(p.fields)
	slices.SortStableFunc(fields, func(a, b executor.FieldError) int { return strings.Compare(a.Field, b.Field) })
	code := executor.Unimplemented
	if p.invalid {
		code = executor.Invalid
	}
	return fields.Err(code, p.Op, "\n")
}

// CheckSpec returns what a backend with these Capabilities refuses of spec, by rules that all backends share. reasons says
// why a field is refused; a field without a reason gets a general one. The caller adds its own rules and takes the Err.
func CheckSpec(spec executor.Spec, can executor.Capabilities, reasons map[string]string) *Problems {
	p := &Problems{Op: "run"}
	if spec.Session == "" {
		can.Languages = []executor.Language{executor.LanguagePython} // the others are interpreters of Sessions
	}
	for _, field := range can.Unsupported(spec) {
		switch {
		case reasons[field] != "":
			p.Refuse(field, "%s", reasons[field])
		case field == "language":
			p.Refuse(field, "must be python outside of a session (got %q); use command for other programs", spec.Language)
		default:
			p.Refuse(field, "this backend cannot do or enforce this")
		}
	}
	if spec.Interpreter == executor.InterpreterSystem && strings.TrimSpace(spec.Requirements) != "" {
		p.Add("requirements_txt", "cannot be installed into the system interpreter")
	}
	p.Require(spec.PythonVersion == "" || IsMinorVersion(spec.PythonVersion),
		"python_version", "must be an exact minor version such as 3.12 (got %q)", spec.PythonVersion)
	return p
}

var minorVersion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^3\.(0|[1-9][0-9]?)$`) })

// IsMinorVersion reports whether text is an exact minor version of Python 3, such as 3.12.
func IsMinorVersion(text string) bool { return minorVersion().MatchString(text) }

// IsURL reports whether text is an absolute http or https URL.
func IsURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http")
}
