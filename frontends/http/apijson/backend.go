package apijson

import (
	"encoding/json"

	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// Backend is a pyexec.Backend whose Capabilities have types.
type Backend struct {
	pyexec.Backend
	Capabilities executor.Capabilities `json:"capabilities" doc:"Promises: what is true is enforced, what is false is refused with 501."`
}

// BackendList is the answer to the call that lists backends.
type BackendList struct {
	Backends []Backend `json:"backends" doc:"Every configured backend, the default first."`
}

// BackendsOf returns the API's form of a list.
func BackendsOf(list []executor.Info) BackendList { return BackendList{convert(list, backendOf)} }

func backendOf(i executor.Info) Backend {
	b := Backend{pyexec.Backend{Name: i.Name, Type: i.Type, Version: i.Version, Generation: i.Generation, Healthy: i.Healthy, Message: i.Message,
		Capacity: i.Capacity, Images: i.Images, Warnings: i.Warnings, Details: i.Details, Metrics: i.Metrics}, i.Capabilities}
	b.Capabilities.Languages = notNil(b.Capabilities.Languages)
	b.Capabilities.PythonVersions = notNil(b.Capabilities.PythonVersions)
	b.Capabilities.PythonDownloads = notNil(b.Capabilities.PythonDownloads)
	return b
}

// ToInfo returns the executor.Info of b.
func ToInfo(b pyexec.Backend) (executor.Info, error) {
	i := executor.Info{Name: b.Name, Type: b.Type, Version: b.Version, Generation: b.Generation, Healthy: b.Healthy, Message: b.Message,
		Capacity: b.Capacity, Images: b.Images, Warnings: b.Warnings, Details: b.Details, Metrics: b.Metrics}
	raw, err := json.Marshal(b.Capabilities)
	if err == nil {
		err = json.Unmarshal(raw, &i.Capabilities)
	}
	if err != nil {
		return i, executor.Errorf(executor.Internal, "the server's capabilities of %s cannot be read: %w", b.Name, err)
	}
	return i, nil
}
