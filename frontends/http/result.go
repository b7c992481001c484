package httpfrontend

import (
	"encoding/json"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/apijson"
)

// summary is the Result without its output: in lists, and in the Event finished.
func summary(e executor.Execution) (json.RawMessage, error) {
	return json.Marshal(apijson.SummaryOf(e))
}

// marshalParts returns the members before the output with the opening brace, and those behind it with the closing one, so
// that the output can be streamed between them. Together they are apijson.Result; a test compares.
func marshalParts(e executor.Execution) (head, tail []byte, err error) {
	if head, err = json.Marshal(apijson.HeadOf(e)); err != nil {
		return nil, nil, err
	}
	if tail, err = json.Marshal(apijson.TailOf(e)); err != nil {
		return nil, nil, err
	}
	return head[:len(head)-1], tail[1:], nil
}

// known returns nil for the zero value, which stands for "unknown" in the contract.
func known[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// list0 is a list that is known, even if it is empty.
func list0(l []string) []string {
	if l == nil {
		return []string{}
	}
	return l
}
