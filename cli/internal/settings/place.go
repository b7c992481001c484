package settings

import (
	"errors"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// Placed returns err, an error of backends, with the place of each key that the error names. The configuration was loaded from o.
// Backends know their keys, but not the file and the variables. Placed returns any other error as it is.
func Placed(o Options, err error) error {
	ofBackends := func(f executor.FieldError) bool { return strings.HasPrefix(f.Field, "backends.") }
	if !slices.ContainsFunc(fieldsOf(err), ofBackends) {
		return err
	}
	_, l, _ := load(o) // its problems are known
	p := &placed{err, err.Error()}
	var fields []executor.FieldError
	for _, f := range fieldsOf(err) {
		after := f
		if ofBackends(f) {
			after = l.place(f)
		}
		fields = append(fields, after)
		p.text = strings.ReplaceAll(p.text, f.Field+": "+f.Message, after.Field+": "+after.Message)
	}
	if e, ok := err.(*executor.Error); ok { //nolint:errorlint // what wraps an Error would be lost
		return &executor.Error{Code: e.Code, Message: p.text, Fields: fields, Err: err}
	}
	return p
}

// placed is an error with another text.
type placed struct {
	error
	text string
}

func (p *placed) Error() string { return p.text }
func (p *placed) Unwrap() error { return p.error }

// fieldsOf returns the fields of all Errors in the tree of err.
func fieldsOf(err error) (fields []executor.FieldError) {
	switch e := err.(type) { //nolint:errorlint // the tree is walked
	case *executor.Error:
		return e.Fields
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			fields = append(fields, fieldsOf(one)...)
		}
		return fields
	default:
		if err == nil {
			return nil
		}
		return fieldsOf(errors.Unwrap(err))
	}
}

// place returns f with the origin of its value in the message: before a suggestion, and beside the value if the message has one.
func (l *loader) place(f executor.FieldError) executor.FieldError {
	origin := l.origin(f.Field)
	if origin == byDefault {
		return f
	}
	const asks = ": did you mean "
	message, meant, suggests := strings.Cut(f.Message, asks)
	if suggests {
		meant = asks + meant
	}
	value, isValue := strings.CutSuffix(message, ")")
	rest, isUnknown := strings.CutPrefix(message, "unknown key")
	switch {
	case isUnknown:
		message = "unknown key (" + origin + ")" + rest
	case isValue && strings.Contains(message, "(got "):
		message = value + ", in " + origin + ")"
	default:
		message += " (in " + origin + ")"
	}
	f.Message = message + meant
	return f
}
