package apijson

import (
	"maps"
	"slices"

	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// BodyOf returns the API's form of b. A Started loses its Handle, which is the Engine's.
func BodyOf(b executor.Body) pyexec.EventBody {
	switch b := b.(type) {
	case executor.Queued:
		return pyexec.Queued(b)
	case executor.Progress:
		return pyexec.Progress{Phase: string(b.Phase), Message: b.Message, Done: b.Done, Total: b.Total, Unit: b.Unit}
	case executor.Started:
		return pyexec.Started{PID: b.PID, PythonVersion: b.PythonVersion, Requirements: notNil(b.Requirements), Start: string(b.Start)}
	case executor.Output:
		return pyexec.Output{Stream: string(b.Stream), Offset: b.Offset, Data: b.Data, Earlier: b.Earlier}
	case executor.Display:
		return pyexec.Display(b)
	case executor.Finished:
		return pyexec.Finished{Execution: ExecutionOf(executor.Execution{Status: b.Result.Status, Result: &b.Result})}
	case executor.Unknown:
		return pyexec.UnknownEvent{Name: string(b.Name), Raw: b.Raw}
	}
	return pyexec.UnknownEvent{Name: string(b.Kind())}
}

// ToBody returns the executor.Body of b.
func ToBody(b pyexec.EventBody) executor.Body {
	switch b := b.(type) {
	case pyexec.Queued:
		return executor.Queued(b)
	case pyexec.Progress:
		return executor.Progress{Phase: executor.Phase(b.Phase), Message: b.Message, Done: b.Done, Total: b.Total, Unit: b.Unit}
	case pyexec.Started:
		return executor.Started{PID: b.PID, PythonVersion: b.PythonVersion, Requirements: b.Requirements, Start: executor.StartKind(b.Start)}
	case pyexec.Output:
		return executor.Output{Stream: executor.Stream(b.Stream), Offset: b.Offset, Data: b.Data, Earlier: b.Earlier}
	case pyexec.Display:
		return executor.Display(b)
	case pyexec.Finished:
		return executor.Finished{Result: toResult(b.Execution)}
	case pyexec.UnknownEvent:
		return executor.Unknown{Name: executor.Kind(b.Name), Raw: b.Raw}
	}
	return executor.Unknown{Name: executor.Kind(b.Kind())}
}

// MaxDisplayBytes bounds the forms that one Result carries, together, before base64. The log has more.
const MaxDisplayBytes = 8 << 20

// Collector turns the Displays of one Execution into the forms of its Result. The zero Collector is ready.
type Collector struct {
	// Truncated reports whether forms are missing.
	Truncated bool
	seen      int
	bytes     int
}

// Add returns the forms of the next Display that fit, sorted by type. Smaller forms are kept when a larger one is too large.
func (c *Collector) Add(d executor.Display) []pyexec.DisplayForm {
	number := c.seen
	c.seen++
	c.Truncated = c.Truncated || d.Truncated
	forms := make([]pyexec.DisplayForm, 0, len(d.Data))
	for _, name := range slices.Sorted(maps.Keys(d.Data)) {
		data := d.Data[name]
		if c.bytes+len(data) > MaxDisplayBytes {
			c.Truncated = true
			continue
		}
		c.bytes += len(data)
		forms = append(forms, pyexec.DisplayForm{MIME: name, Data: data, Value: d.Value, Display: number})
	}
	return forms
}
