package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/drivers"
)

// maxForms bounds how many forms a Display has.
const maxForms = 32

// display passes a Display on, behind all output that was written before it.
func (c *cell) display(a drivers.Answer) {
	d, err := parseDisplay(a.Display)
	if err != nil || c.displays >= executor.MaxDisplays {
		c.execution.res.DisplaysDropped++
		return
	}
	c.displays++
	for _, t := range c.interp.taps {
		t.drain()
	}
	if c.isCancelled() {
		c.execution.res.DisplaysDropped++ // whoever waits for room now keeps the interrupt waiting
		return
	}
	frame, err := json.Marshal(d)
	if err != nil || len(frame) > maxControl {
		c.execution.res.DisplaysDropped++
		return
	}
	_ = c.box.event(frameDisplay, frame) // nobody listening is no concern of the cell's
}

// parseDisplay reads what a driver, or who poses as one, calls a Display, with few forms of few bytes.
func parseDisplay(raw json.RawMessage) (executor.Display, error) {
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
		return d, errors.New("no form that may be shown")
	}
	return d, nil
}
