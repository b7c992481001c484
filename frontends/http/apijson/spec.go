package apijson

import (
	"cmp"
	"math"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

const mb = 1 << 20

// SpecOf returns the metadata of s. Zero fields stay zero and are not sent.
func SpecOf(s executor.Spec) pyexec.Spec {
	return pyexec.Spec{
		Language: string(s.Language), Entrypoint: s.Entrypoint, Code: s.Code, Command: s.Command, Args: s.Args, Env: s.Env,
		PythonVersion: s.PythonVersion, Interpreter: string(s.Interpreter), DockerImage: s.Image,
		RequirementsTxt: s.Requirements, PreCommands: s.PreCommands, Detect: s.Detect, Outputs: s.Outputs,
		OutputsChanged: s.OutputsChanged, FilesChanged: s.FilesChanged, Config: configOf(s.Limits, s.Network), SessionID: s.Session,
		Backend: s.Backend, Durable: s.Durable, IdempotencyKey: s.IdempotencyKey, SampleIntervalSeconds: s.SampleInterval.Seconds(), InterruptOnCancel: s.InterruptOnCancel,
		Script: s.Script, HostDirectory: s.HostDirectory,
	}
}

// ToSpec returns the executor.Spec of s, but for Stdin, which is no part of it.
func ToSpec(s pyexec.Spec) executor.Spec {
	limits, network := toAsked(s.Config)
	return executor.Spec{
		Language: executor.Language(s.Language), Entrypoint: s.Entrypoint, Code: s.Code, Command: s.Command, Args: s.Args, Env: s.Env,
		PythonVersion: s.PythonVersion, Interpreter: executor.Interpreter(s.Interpreter), Image: s.DockerImage,
		Requirements: s.RequirementsTxt, PreCommands: s.PreCommands, Detect: s.Detect, Outputs: s.Outputs,
		OutputsChanged: s.OutputsChanged, FilesChanged: s.FilesChanged, Limits: limits, Network: network, Session: s.SessionID,
		Backend: s.Backend, Durable: s.Durable, IdempotencyKey: s.IdempotencyKey, SampleInterval: asked(s.SampleIntervalSeconds), InterruptOnCancel: s.InterruptOnCancel,
		Script: s.Script, HostDirectory: s.HostDirectory,
	}
}

// SessionSpecOf returns what a request to open s says. Zero fields stay zero and are not sent.
func SessionSpecOf(s executor.Session) pyexec.SessionSpec {
	return pyexec.SessionSpec{
		Name: s.Name, Description: s.Description, Language: string(cmp.Or(s.Language, s.Spec.Language)), PythonVersion: s.Spec.PythonVersion,
		DockerImage: s.Spec.Image, RequirementsTxt: s.Spec.Requirements, PreCommands: s.Spec.PreCommands, Env: s.Spec.Env,
		Config: configOf(s.Spec.Limits, s.Spec.Network), Backend: s.Spec.Backend,
		IdleTimeoutSeconds: s.IdleTimeout.Seconds(), MaxLifeSeconds: s.MaxLife.Seconds(),
	}
}

// ToNewSession returns the executor.Session that s asks for.
func ToNewSession(s pyexec.SessionSpec) executor.Session {
	limits, network := toAsked(s.Config)
	language := executor.Language(s.Language)
	return executor.Session{
		Name: s.Name, Description: s.Description, Language: language, IdleTimeout: asked(s.IdleTimeoutSeconds), MaxLife: asked(s.MaxLifeSeconds),
		Spec: executor.Spec{
			Language: language, PythonVersion: s.PythonVersion, Image: s.DockerImage, Requirements: s.RequirementsTxt,
			PreCommands: s.PreCommands, Env: s.Env, Limits: limits, Network: network, Backend: s.Backend,
		},
	}
}

func configOf(l executor.Limits, n executor.Network) pyexec.Config {
	c := pyexec.Config{
		MemoryMB: megabytes(l.MemoryBytes), DiskMB: megabytes(l.DiskBytes), CPUShares: l.CPUShares, PIDs: l.PIDs,
		OutputBytes: l.OutputBytes, KillGraceSeconds: l.KillGrace.Seconds(), CPUSeconds: l.CPUTime.Seconds(),
	}
	switch {
	case l.Timeout == executor.TimeoutMaximum:
		c.TimeoutSeconds = new(float64)
	case l.Timeout > 0:
		c.TimeoutSeconds = new(l.Timeout.Seconds())
	}
	if n != executor.NetworkDefault {
		c.NetworkDisabled = new(n == executor.NetworkOff)
	}
	return c
}

// megabytes rounds up, so that a limit that was asked for does not become zero.
func megabytes(n int64) int64 {
	if n%mb > 0 {
		return n/mb + 1
	}
	return n / mb
}

func toAsked(c pyexec.Config) (executor.Limits, executor.Network) {
	l := executor.Limits{
		MemoryBytes: saturated(c.MemoryMB), DiskBytes: saturated(c.DiskMB), CPUShares: c.CPUShares, PIDs: c.PIDs,
		OutputBytes: c.OutputBytes, KillGrace: asked(c.KillGraceSeconds), CPUTime: asked(c.CPUSeconds),
	}
	if t := c.TimeoutSeconds; t != nil {
		l.Timeout = cmp.Or(asked(*t), executor.TimeoutMaximum)
	}
	network := executor.NetworkDefault
	if off := c.NetworkDisabled; off != nil && *off {
		network = executor.NetworkOff
	} else if off != nil {
		network = executor.NetworkOn
	}
	return l, network
}

// asked returns seconds as a Duration. A positive number does not become zero, which means that nothing was asked for.
func asked(seconds float64) time.Duration {
	if seconds == 0 {
		return 0
	}
	return max(1, time.Duration(math.Round(seconds*float64(time.Second))))
}

// saturated returns n MB in bytes, at most the largest number, which no server allows.
func saturated(n int64) int64 {
	if n > math.MaxInt64/mb {
		return math.MaxInt64
	}
	return n * mb
}
