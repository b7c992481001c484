package job

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// Version is the version of the records. A Reader refuses any other.
const Version = 1

// MaxRecord is the maximum length of a line, in bytes. A Reader refuses a longer one, and a Writer writes none.
const MaxRecord = protocol.MaxControl + 64<<10

// Record is one line of the file events. Exactly one field is set.
type Record struct {
	Begin *Begin `json:"begin,omitempty"`
	// Event is Progress, Started, Output, or Unknown. A record of an unknown type becomes an Unknown of that name.
	Event    *executor.Event  `json:"event,omitempty"`
	Artifact *Artifact        `json:"artifact,omitempty"`
	Prepared *Prepared        `json:"prepared,omitempty"`
	Result   *executor.Result `json:"result,omitempty"`
	// Error says why the runner itself failed.
	Error *Error `json:"error,omitempty"`
}

// Begin is the first record.
type Begin struct {
	Version     int    `json:"version"`
	ExecutionID string `json:"execution_id"`
}

// Artifact says where a collected file is in the file artifacts.
type Artifact struct {
	Header protocol.ArtifactHeader `json:"header"`
	// Offset is where the content begins. It has Header.Size bytes, which were written before this record.
	Offset int64 `json:"offset"`
}

// Prepared is what a preparation made. It is the last record of job-prepare.
type Prepared struct {
	// Interpreter is the Python of the environment; empty if there were no requirements.
	Interpreter string `json:"interpreter,omitempty"`
	// PythonVersion is the full version ("3.12.1").
	PythonVersion string `json:"python_version,omitempty"`
	// Requirements is what was installed ("requests==2.32.3"), sorted.
	Requirements []string `json:"requirements,omitempty"`
	// Path is a folder that precedes the PATH of programs.
	Path string `json:"path,omitempty"`
	// Work is the folder with the Execution's Workspace; empty if there were no commands.
	Work string `json:"work,omitempty"`
}

// Error is an error of the runner, or a refusal: then Code is invalid and Fields names what is refused.
type Error struct {
	Code    executor.Code         `json:"code"`
	Message string                `json:"message"`
	Fields  []executor.FieldError `json:"fields,omitempty"`
}

// Err returns e as an executor.Error.
func (e Error) Err() error {
	return &executor.Error{Code: e.Code, Message: e.Message, Fields: e.Fields}
}

// Last reports whether no record follows r.
func (r Record) Last() bool { return r.Prepared != nil || r.Result != nil || r.Error != nil }

// decode reads one line.
func decode(line []byte) (Record, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(line, &keys); err != nil {
		return Record{}, err
	}
	if len(keys) != 1 {
		return Record{}, fmt.Errorf("must have one key (got %d)", len(keys))
	}
	var r Record
	for name, raw := range keys {
		var into any
		switch name {
		case "begin":
			into = &r.Begin
		case "event":
			into = &r.Event
		case "artifact":
			into = &r.Artifact
		case "prepared":
			into = &r.Prepared
		case "result":
			into = &r.Result
		case "error":
			into = &r.Error
		default:
			r.Event = &executor.Event{Body: executor.Unknown{Name: executor.Kind(name), Raw: raw}}
			return r, nil
		}
		if string(raw) == "null" {
			return Record{}, fmt.Errorf("%s: must not be null", name)
		}
		if err := json.Unmarshal(raw, into); err != nil {
			return Record{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r, r.check()
}

// check returns what is wrong with r.
func (r Record) check() error {
	switch {
	case r.Begin != nil && r.Begin.Version != Version:
		return fmt.Errorf("begin: the runner writes version %d, and this server reads %d", r.Begin.Version, Version)
	case r.Artifact != nil && (r.Artifact.Offset < 0 || r.Artifact.Header.Size < 0 || r.Artifact.Header.Path == ""):
		return errors.New("artifact: must have a path, a size and an offset that are not negative")
	case r.Result != nil && !r.Result.Status.Terminal():
		return fmt.Errorf("result: must have a terminal status (got %q)", r.Result.Status)
	case r.Event != nil:
		return checkBody(r.Event.Body)
	}
	return nil
}

func checkBody(b executor.Body) error {
	switch b := b.(type) {
	case executor.Output:
		if b.Stream != executor.Stdout && b.Stream != executor.Stderr || b.Offset < 0 || len(b.Data) == 0 || len(b.Data) > executor.MaxOutputData {
			return fmt.Errorf("output: must be 1 to %d bytes of stdout or stderr at an offset that is not negative", executor.MaxOutputData)
		}
	case executor.Queued, executor.Finished:
		return fmt.Errorf("event: a runner cannot write %s", b.Kind())
	}
	return nil
}
