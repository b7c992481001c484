package uvbackend

import (
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
)

// normalise reads a requirements text as this backend takes it.
func normalise(text string, allowBuilds bool) ([]string, error) {
	return requirements.Normalise(text, requirements.Options{AllowBuilds: allowBuilds, Setting: "backends.uv.allow_builds"})
}

// refused is the Failure of a text that normalise refused.
func refused(err error) *executor.Failure { return requirements.Refused(err) }
