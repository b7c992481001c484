package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// A field that is added to the contract and forgotten here fails TestEveryFieldOfTheContractCrosses.

// toDuration leaves a zero out, so that a message of zeros is an empty message.
func toDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// toTime leaves the zero time out. Times cross in UTC, with nanoseconds.
func toTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func fromTime(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// words converts between slices of strings of different types.
func words[T, S ~string](from []S) []T {
	if len(from) == 0 {
		return nil
	}
	to := make([]T, len(from))
	for i, s := range from {
		to[i] = T(s)
	}
	return to
}

// each converts a slice, element by element.
func each[T, S any](from []S, convert func(S) T) []T {
	if len(from) == 0 {
		return nil
	}
	to := make([]T, len(from))
	for i, s := range from {
		to[i] = convert(s)
	}
	return to
}

func toLimits(l executor.Limits) *pb.Limits {
	return &pb.Limits{
		Timeout:     toDuration(l.Timeout),
		MemoryBytes: l.MemoryBytes,
		DiskBytes:   l.DiskBytes,
		CpuShares:   l.CPUShares,
		Pids:        l.PIDs,
		OutputBytes: l.OutputBytes,
		KillGrace:   toDuration(l.KillGrace),
	}
}

func fromLimits(l *pb.Limits) executor.Limits {
	return executor.Limits{
		Timeout:     l.GetTimeout().AsDuration(),
		MemoryBytes: l.GetMemoryBytes(),
		DiskBytes:   l.GetDiskBytes(),
		CPUShares:   l.GetCpuShares(),
		PIDs:        l.GetPids(),
		OutputBytes: l.GetOutputBytes(),
		KillGrace:   l.GetKillGrace().AsDuration(),
	}
}

func toSpec(s executor.Spec) *pb.Spec {
	return &pb.Spec{
		Language:       string(s.Language),
		Entrypoint:     s.Entrypoint,
		Code:           s.Code,
		Command:        s.Command,
		Args:           s.Args,
		Env:            s.Env,
		PythonVersion:  s.PythonVersion,
		Interpreter:    string(s.Interpreter),
		Image:          s.Image,
		Requirements:   s.Requirements,
		PreCommands:    s.PreCommands,
		Detect:         s.Detect,
		Outputs:        s.Outputs,
		OutputsChanged: s.OutputsChanged,
		FilesChanged:   s.FilesChanged,
		Limits:         toLimits(s.Limits),
		Network:        string(s.Network),
		Session:        s.Session,
		Backend:        s.Backend,
		Durable:        s.Durable,
		IdempotencyKey: s.IdempotencyKey,
		SampleInterval: toDuration(s.SampleInterval),
		Script:         s.Script,
		HostDirectory:  s.HostDirectory,
	}
}

func fromSpec(s *pb.Spec) executor.Spec {
	if s == nil {
		return executor.Spec{}
	}
	return executor.Spec{
		Language:       executor.Language(s.Language),
		Entrypoint:     s.Entrypoint,
		Code:           s.Code,
		Command:        s.Command,
		Args:           s.Args,
		Env:            s.Env,
		PythonVersion:  s.PythonVersion,
		Interpreter:    executor.Interpreter(s.Interpreter),
		Image:          s.Image,
		Requirements:   s.Requirements,
		PreCommands:    s.PreCommands,
		Detect:         s.Detect,
		Outputs:        s.Outputs,
		OutputsChanged: s.OutputsChanged,
		FilesChanged:   s.FilesChanged,
		Limits:         fromLimits(s.Limits),
		Network:        executor.Network(s.Network),
		Session:        s.Session,
		Backend:        s.Backend,
		Durable:        s.Durable,
		IdempotencyKey: s.IdempotencyKey,
		SampleInterval: s.SampleInterval.AsDuration(),
		Script:         s.Script,
		HostDirectory:  s.HostDirectory,
	}
}

func toExecution(e executor.Execution) *pb.Execution {
	out := &pb.Execution{
		Id:          e.ID,
		Owner:       e.Owner,
		Spec:        toSpec(e.Spec),
		Status:      string(e.Status),
		Backend:     e.Backend,
		Attempts:    int64(e.Attempts),
		CreatedAt:   toTime(e.CreatedAt),
		StartedAt:   toTime(e.StartedAt),
		FinishedAt:  toTime(e.FinishedAt),
		StdoutBytes: e.StdoutBytes,
		StderrBytes: e.StderrBytes,
		LastSeq:     e.LastSeq,
	}
	if e.Started != nil {
		out.Started = toStarted(*e.Started)
	}
	if e.Result != nil {
		out.Result = toResult(*e.Result)
	}
	return out
}

func fromExecution(e *pb.Execution) executor.Execution {
	if e == nil {
		return executor.Execution{}
	}
	out := executor.Execution{
		ID:          e.Id,
		Owner:       e.Owner,
		Spec:        fromSpec(e.Spec),
		Status:      executor.Status(e.Status),
		Backend:     e.Backend,
		Attempts:    int(e.Attempts),
		CreatedAt:   fromTime(e.CreatedAt),
		StartedAt:   fromTime(e.StartedAt),
		FinishedAt:  fromTime(e.FinishedAt),
		StdoutBytes: e.StdoutBytes,
		StderrBytes: e.StderrBytes,
		LastSeq:     e.LastSeq,
	}
	if e.Started != nil {
		s := fromStarted(e.Started)
		out.Started = &s
	}
	if e.Result != nil {
		r := fromResult(e.Result)
		out.Result = &r
	}
	return out
}

func toFilter(f executor.Filter) *pb.Filter {
	return &pb.Filter{Owner: f.Owner, Statuses: words[string](f.Statuses), After: f.After, Limit: int64(f.Limit)}
}

func fromFilter(f *pb.Filter) executor.Filter {
	return executor.Filter{
		Owner:    f.GetOwner(),
		Statuses: words[executor.Status](f.GetStatuses()),
		After:    f.GetAfter(),
		Limit:    int(f.GetLimit()),
	}
}

func toScript(s executor.Script) *pb.Script {
	return &pb.Script{Path: s.Path, AllowedArgs: s.AllowedArgs, DefaultArgs: s.DefaultArgs}
}

func fromScript(s *pb.Script) executor.Script {
	return executor.Script{Path: s.GetPath(), AllowedArgs: s.GetAllowedArgs(), DefaultArgs: s.GetDefaultArgs()}
}

func toPrincipal(p executor.Principal) *pb.Principal {
	return &pb.Principal{Owner: p.Owner, Scopes: words[string](p.Scopes)}
}

func fromPrincipal(p *pb.Principal) executor.Principal {
	return executor.Principal{Owner: p.GetOwner(), Scopes: words[executor.Scope](p.GetScopes())}
}
