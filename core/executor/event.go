package executor

import (
	"encoding/json"
	"fmt"
	"time"
)

// Event is one entry of an Execution's log: Queued → Progress* → Started → (Output | Display | Progress)* → Finished. There is exactly one
// Finished, and nothing follows it.
type Event struct {
	// Seq numbers an Execution's Events from 1 without gaps. The Store assigns it; 0 before.
	Seq uint64
	// Time is when the Store appended it; zero before.
	Time time.Time
	Body Body
}

// Kind names a Body's type, as it stands in JSON, SSE and proto.
type Kind string

// The kinds.
const (
	KindQueued   Kind = "queued"
	KindProgress Kind = "progress"
	KindStarted  Kind = "started"
	KindOutput   Kind = "output"
	KindDisplay  Kind = "display"
	KindFinished Kind = "finished"
)

// Body is one of Queued, Progress, Started, Output, Display, Finished, Unknown.
type Body interface {
	Kind() Kind
	sealed()
}

// Queued is written by the Engine when it has accepted the Execution.
type Queued struct {
	// Position in the queue, from 0; a snapshot.
	Position int `json:"position"`
}

// Progress tells what happens apart from the program itself (upload, install, collect). Backends rate-limit it.
type Progress struct {
	Phase   Phase  `json:"phase"`
	Message string `json:"message"`
	// Done and Total count Unit; Total 0 = unknown.
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
	// Unit is "bytes", "packages", … or empty.
	Unit string `json:"unit,omitzero"`
}

// StartKind says how a program's process was made.
type StartKind string

// The start kinds.
const (
	StartUnknown StartKind = ""
	// StartExec: a new interpreter, or another new process.
	StartExec StartKind = "exec"
	// StartFork: a copy of an interpreter that had started before, or that interpreter itself.
	StartFork StartKind = "fork"
)

// Started: the program runs.
type Started struct {
	// PID is the main process's number where the backend's plugin runs; 0 = unknown.
	PID           int       `json:"pid"`
	PythonVersion string    `json:"python_version,omitzero"`
	Requirements  []string  `json:"requirements,omitempty"`
	Start         StartKind `json:"start,omitzero"`
	// Handle is opaque, at most 4 KiB: Attach finds the program with it. It never leaves the Engine.
	Handle []byte `json:"handle,omitempty"`
}

// Stream is one of a program's output streams.
type Stream string

// The streams.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Output is a piece of a stream. Data is at most MaxOutputData bytes and not empty.
type Output struct {
	Stream Stream `json:"stream"`
	// Offset of Data's first byte in its stream. Kept bytes have no gaps, so a replay is de-duplicated by arithmetic.
	Offset int64  `json:"offset"`
	Data   []byte `json:"data"`
	// Earlier: the data was written before this Execution began, by a program that an earlier one of its Session left running.
	Earlier bool `json:"earlier,omitzero"`
}

// MaxOutputData is the most bytes one Output carries.
const MaxOutputData = 256 << 10

// Display is a rich value as a MIME bundle, one value in several forms: image/png, text/html, text/plain, …
type Display struct {
	Data map[string][]byte `json:"data"`
	// Value: it is the value of the code's last expression. Otherwise the code displayed it.
	Value bool `json:"value,omitzero"`
	// Truncated: forms were left out or cut, because of MaxDisplayData or of what an Execution may display in all.
	Truncated bool `json:"truncated,omitzero"`
}

// MaxDisplayData bounds the bytes of one Display, in all its forms together. MaxDisplays bounds the Displays of an Execution; those beyond
// it are counted in Result.DisplaysDropped.
const (
	MaxDisplayData = 2 << 20
	MaxDisplays    = 200
)

// Finished is written by the Engine, once, last.
type Finished struct {
	Result Result `json:"result"`
}

// Unknown is an Event of a kind that this version does not know. It is passed on, never dropped.
type Unknown struct {
	Name Kind            `json:"kind"`
	Raw  json.RawMessage `json:"raw"`
}

// Kind implements Body.
func (Queued) Kind() Kind { return KindQueued }

// Kind implements Body.
func (Progress) Kind() Kind { return KindProgress }

// Kind implements Body.
func (Started) Kind() Kind { return KindStarted }

// Kind implements Body.
func (Output) Kind() Kind { return KindOutput }

// Kind implements Body.
func (Display) Kind() Kind { return KindDisplay }

// Kind implements Body.
func (Finished) Kind() Kind { return KindFinished }

// Kind implements Body.
func (u Unknown) Kind() Kind { return u.Name }

func (Queued) sealed()   {}
func (Progress) sealed() {}
func (Started) sealed()  {}
func (Output) sealed()   {}
func (Display) sealed()  {}
func (Finished) sealed() {}
func (Unknown) sealed()  {}

type eventJSON struct {
	Seq  uint64          `json:"seq"`
	Time time.Time       `json:"time,omitzero"`
	Kind Kind            `json:"kind"`
	Body json.RawMessage `json:"body"`
}

// MarshalJSON writes {"seq","time","kind","body"}: the stored form.
func (e Event) MarshalJSON() ([]byte, error) {
	if e.Body == nil {
		return nil, fmt.Errorf("event %d has no body", e.Seq)
	}
	var body any = e.Body
	if u, ok := e.Body.(Unknown); ok {
		body = u.Raw
	}
	return json.Marshal(struct {
		Seq  uint64    `json:"seq"`
		Time time.Time `json:"time,omitzero"`
		Kind Kind      `json:"kind"`
		Body any       `json:"body"`
	}{e.Seq, e.Time, e.Body.Kind(), body})
}

// UnmarshalJSON reads what MarshalJSON wrote; a kind it does not know becomes Unknown.
func (e *Event) UnmarshalJSON(b []byte) error {
	var j eventJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	body, err := decodeBody(j.Kind, j.Body)
	if err != nil {
		return fmt.Errorf("event %d: %w", j.Seq, err)
	}
	*e = Event{j.Seq, j.Time, body}
	return nil
}

func decodeBody(kind Kind, raw json.RawMessage) (Body, error) {
	switch kind {
	case KindQueued:
		return decodeAs[Queued](raw)
	case KindProgress:
		return decodeAs[Progress](raw)
	case KindStarted:
		return decodeAs[Started](raw)
	case KindOutput:
		return decodeAs[Output](raw)
	case KindDisplay:
		return decodeAs[Display](raw)
	case KindFinished:
		return decodeAs[Finished](raw)
	default:
		return Unknown{kind, raw}, nil
	}
}

func decodeAs[T Body](raw json.RawMessage) (Body, error) {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	return v, nil
}
