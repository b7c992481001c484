package remote

import (
	"time"

	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// toSpec returns the API's metadata; zero fields stay zero and are not sent.
func toSpec(s executor.Spec) pyexec.Spec {
	return pyexec.Spec{
		Language: string(s.Language), Entrypoint: s.Entrypoint, Code: s.Code, Command: s.Command, Args: s.Args, Env: s.Env,
		PythonVersion: s.PythonVersion, Interpreter: string(s.Interpreter), DockerImage: s.Image,
		RequirementsTxt: s.Requirements, PreCommands: s.PreCommands, Detect: s.Detect, Outputs: s.Outputs,
		OutputsChanged: s.OutputsChanged, FilesChanged: s.FilesChanged, Config: toConfig(s.Limits, s.Network), SessionID: s.Session, Backend: s.Backend,
		Durable: s.Durable, IdempotencyKey: s.IdempotencyKey, SampleIntervalSeconds: s.SampleInterval.Seconds(),
		Script: s.Script, HostDirectory: s.HostDirectory,
	}
}

func toConfig(l executor.Limits, n executor.Network) pyexec.Config {
	c := pyexec.Config{
		MemoryMB: megabytes(l.MemoryBytes), DiskMB: megabytes(l.DiskBytes), CPUShares: l.CPUShares, PIDs: l.PIDs,
		OutputBytes: l.OutputBytes, KillGraceSeconds: l.KillGrace.Seconds(),
	}
	switch {
	case l.Timeout == executor.TimeoutMaximum:
		c.TimeoutSeconds = new(float64)
	case l.Timeout > 0:
		c.TimeoutSeconds = new(l.Timeout.Seconds())
	}
	switch n {
	case executor.NetworkOff:
		c.NetworkDisabled = new(true)
	case executor.NetworkOn:
		c.NetworkDisabled = new(bool)
	case executor.NetworkDefault:
	}
	return c
}

// megabytes rounds up: a limit that was asked for must not become none.
func megabytes(n int64) int64 { return (n + 1<<20 - 1) >> 20 }

func toExecution(e pyexec.Execution) executor.Execution {
	out := executor.Execution{
		ID: e.ExecutionID, Status: executor.Status(e.Status), Backend: e.Backend, Attempts: e.Attempts,
		CreatedAt: e.CreatedAt, StartedAt: e.StartedAt, FinishedAt: e.FinishedAt,
		StdoutBytes: e.StdoutBytes, StderrBytes: e.StderrBytes, Spec: executor.Spec{Session: e.SessionID},
	}
	if !e.StartedAt.IsZero() {
		out.Started = &executor.Started{PythonVersion: e.PythonVersion, Requirements: e.ResolvedRequirements}
	}
	if e.Finished() {
		r := toResult(e)
		out.Result = &r
	}
	return out
}

func toResult(e pyexec.Execution) executor.Result {
	r := executor.Result{
		Status: executor.Status(e.Status), ExitCode: e.ExitCode, Signal: e.Signal,
		Wall: duration(e.DurationSeconds, 0), CPU: duration(e.CPUSeconds, -1), PeakMemoryBytes: value(e.PeakMemoryBytes),
		Phases: executor.Phases{
			Queue: duration(e.Phases.QueueSeconds, 0), Prepare: duration(e.Phases.PrepareSeconds, 0),
			Run: duration(e.Phases.RunSeconds, 0), Collect: duration(e.Phases.CollectSeconds, 0),
		},
		StdoutBytes: e.StdoutBytes, StderrBytes: e.StderrBytes,
		StdoutTruncated: e.StdoutTruncated, StderrTruncated: e.StderrTruncated,
		PythonVersion: e.PythonVersion, Requirements: e.ResolvedRequirements, ImageDigest: e.ImageDigest,
		DisplaysDropped: e.DisplaysDropped, FilesOmitted: e.FilesOmitted,
	}
	if e.SessionState != pyexec.SessionStateKept {
		r.SessionState = executor.SessionState(e.SessionState)
	}
	if f := e.Failure; f != nil {
		r.Failure = &executor.Failure{Code: executor.Code(f.Code), Phase: executor.Phase(f.Phase), Message: f.Message}
	}
	for _, a := range e.Artifacts {
		r.Artifacts = append(r.Artifacts, executor.Artifact(a))
	}
	for _, f := range e.FilesChanged {
		r.FilesChanged = append(r.FilesChanged, executor.Artifact(f))
	}
	for _, m := range e.MemorySamples {
		r.MemorySamples = append(r.MemorySamples, executor.MemorySample{Offset: seconds(m.OffsetSeconds), Bytes: m.Bytes})
	}
	return r
}

func toBody(b pyexec.EventBody) executor.Body {
	switch b := b.(type) {
	case pyexec.Queued:
		return executor.Queued{Position: b.Position}
	case pyexec.Progress:
		return executor.Progress{Phase: executor.Phase(b.Phase), Message: b.Message, Done: b.Done, Total: b.Total, Unit: b.Unit}
	case pyexec.Started:
		return executor.Started{PID: b.PID, PythonVersion: b.PythonVersion, Requirements: b.Requirements, Start: executor.StartKind(b.Start)}
	case pyexec.Output:
		return executor.Output{Stream: executor.Stream(b.Stream), Offset: b.Offset, Data: b.Data, Earlier: b.Earlier}
	case pyexec.Display:
		return executor.Display{Data: b.Data, Value: b.Value, Truncated: b.Truncated}
	case pyexec.Finished:
		return executor.Finished{Result: toResult(b.Execution)}
	case pyexec.UnknownEvent:
		return executor.Unknown{Name: executor.Kind(b.Name), Raw: b.Raw}
	default:
		return executor.Unknown{Name: executor.Kind(b.Kind())}
	}
}

func value[T any](p *T) T {
	var v T
	if p != nil {
		v = *p
	}
	return v
}

func duration(s *float64, unknown time.Duration) time.Duration {
	if s == nil {
		return unknown
	}
	return seconds(*s)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
