package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/python-executor/python-executor/core/executor"
)

// maxForms bounds the forms of a Display.
const maxForms = 32

// ParseDisplay reads a driver's Display. The user's code can forge it, so it is bounded.
func ParseDisplay(raw json.RawMessage) (executor.Display, error) {
	d := executor.Display{Data: map[string][]byte{}}
	var head struct {
		Data      json.RawMessage `json:"data"`
		Value     bool            `json:"value"`
		Truncated bool            `json:"truncated"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return d, err
	}
	d.Value, d.Truncated = head.Value, head.Truncated
	forms := json.NewDecoder(bytes.NewReader(head.Data))
	if open, err := forms.Token(); err != nil || open != json.Delim('{') {
		return d, fmt.Errorf("no forms: %w", err)
	}
	room := executor.MaxDisplayData
	for n := 0; forms.More(); n++ {
		name, err := forms.Token()
		mime, ok := name.(string)
		var data []byte
		if err == nil {
			err = forms.Decode(&data)
		}
		if err != nil || !ok || n >= maxForms {
			return d, fmt.Errorf("form %d: %w", n, err)
		}
		if len(data) > room || mime == "" || len(mime) > 200 {
			d.Truncated = true
			continue
		}
		room -= len(data)
		d.Data[mime] = data
	}
	if len(d.Data) == 0 {
		return d, errors.New("no form can be shown")
	}
	return d, nil
}
