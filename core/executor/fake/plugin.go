package fake

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

// Section is the fake's section of a configuration. The zero value is DefaultCapabilities.
type Section struct {
	// Capabilities replace DefaultCapabilities; nil: they do not.
	Capabilities *executor.Capabilities `json:"capabilities"`
	// Capacity in Info.
	Capacity int `json:"capacity"`
	// PrepareSeconds is the duration of every preparation, in seconds.
	PrepareSeconds float64 `json:"prepare_seconds"`
}

// Factory serves the fake as a plugin. It is a plugin.Factory.
func Factory(_ context.Context, c plugin.Configure) (executor.Backend, error) {
	var s Section
	if len(c.Options) > 0 {
		d := json.NewDecoder(bytes.NewReader(c.Options))
		d.DisallowUnknownFields()
		if err := d.Decode(&s); err != nil {
			field := "backends." + c.Name
			if key, ok := strings.CutPrefix(err.Error(), `json: unknown field "`); ok {
				field += "." + strings.TrimSuffix(key, `"`)
			}
			return nil, executor.FieldErrorf(executor.Invalid, field, "%v", err)
		}
	}
	return &served{New(Options{
		Name:         c.Name,
		Version:      "test",
		Capabilities: s.Capabilities,
		Capacity:     s.Capacity,
		PrepareDelay: time.Duration(s.PrepareSeconds * float64(time.Second)),
	})}, nil
}

// served is a Backend that ends its programs when the plugin drains or its host has died.
type served struct{ *Backend }

// Close implements io.Closer.
func (s *served) Close() error {
	s.Abandon()
	return nil
}
