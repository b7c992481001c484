package wire

import (
	"encoding/json"
	"fmt"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

func toEvent(e executor.Event) (*pb.Event, error) {
	if e.Body == nil {
		return nil, executor.Errorf(executor.Internal, "event %d has no body", e.Seq)
	}
	out := &pb.Event{Seq: e.Seq, Time: toTime(e.Time), Kind: string(e.Body.Kind())}
	switch b := e.Body.(type) {
	case executor.Queued:
		out.Body = &pb.Event_Queued{Queued: &pb.Queued{Position: int64(b.Position)}}
	case executor.Progress:
		out.Body = &pb.Event_Progress{Progress: &pb.Progress{
			Phase: string(b.Phase), Message: b.Message, Done: b.Done, Total: b.Total, Unit: b.Unit,
		}}
	case executor.Started:
		out.Body = &pb.Event_Started{Started: toStarted(b)}
	case executor.Output:
		out.Body = &pb.Event_Output{Output: &pb.Output{Stream: string(b.Stream), Offset: b.Offset, Data: b.Data, Earlier: b.Earlier}}
	case executor.Display:
		out.Body = &pb.Event_Display{Display: &pb.Display{Data: b.Data, Value: b.Value, Truncated: b.Truncated}}
	case executor.Finished:
		out.Body = &pb.Event_Finished{Finished: &pb.Finished{Result: toResult(b.Result)}}
	case executor.Unknown:
		out.Body = &pb.Event_Unknown{Unknown: &pb.Unknown{Raw: b.Raw}}
	default:
		return nil, executor.Errorf(executor.Internal, "event %d has a body of type %s", e.Seq, fmt.Sprintf("%T", b))
	}
	return out, nil
}

// fromEvent never fails: a body that this version does not know becomes Unknown.
func fromEvent(e *pb.Event) executor.Event {
	out := executor.Event{Seq: e.GetSeq(), Time: fromTime(e.GetTime())}
	switch b := e.GetBody().(type) {
	case *pb.Event_Queued:
		out.Body = executor.Queued{Position: int(b.Queued.GetPosition())}
	case *pb.Event_Progress:
		p := b.Progress
		out.Body = executor.Progress{
			Phase:   executor.Phase(p.GetPhase()),
			Message: p.GetMessage(), Done: p.GetDone(), Total: p.GetTotal(), Unit: p.GetUnit(),
		}
	case *pb.Event_Started:
		out.Body = fromStarted(b.Started)
	case *pb.Event_Output:
		o := b.Output
		out.Body = executor.Output{
			Stream: executor.Stream(o.GetStream()), Offset: o.GetOffset(), Data: o.GetData(), Earlier: o.GetEarlier(),
		}
	case *pb.Event_Display:
		d := b.Display
		out.Body = executor.Display{Data: d.GetData(), Value: d.GetValue(), Truncated: d.GetTruncated()}
	case *pb.Event_Finished:
		out.Body = executor.Finished{Result: fromResult(b.Finished.GetResult())}
	case *pb.Event_Unknown:
		out.Body = executor.Unknown{Name: executor.Kind(e.GetKind()), Raw: json.RawMessage(b.Unknown.GetRaw())}
	default:
		out.Body = executor.Unknown{Name: executor.Kind(e.GetKind())}
	}
	return out
}

func toStarted(s executor.Started) *pb.Started {
	return &pb.Started{
		Pid:           int64(s.PID),
		PythonVersion: s.PythonVersion,
		Requirements:  s.Requirements,
		Start:         string(s.Start),
		Handle:        s.Handle,
	}
}

func fromStarted(s *pb.Started) executor.Started {
	return executor.Started{
		PID:           int(s.GetPid()),
		PythonVersion: s.GetPythonVersion(),
		Requirements:  s.GetRequirements(),
		Start:         executor.StartKind(s.GetStart()),
		Handle:        s.GetHandle(),
	}
}

func toArtifact(a executor.Artifact) *pb.Artifact {
	return &pb.Artifact{Path: a.Path, SizeBytes: a.SizeBytes}
}

func fromArtifact(a *pb.Artifact) executor.Artifact {
	return executor.Artifact{Path: a.GetPath(), SizeBytes: a.GetSizeBytes()}
}

func toResult(r executor.Result) *pb.Result {
	out := &pb.Result{
		Status:          string(r.Status),
		Signal:          r.Signal,
		Wall:            toDuration(r.Wall),
		Cpu:             toDuration(r.CPU),
		PeakMemoryBytes: r.PeakMemoryBytes,
		Phases: &pb.Phases{
			Queue:   toDuration(r.Phases.Queue),
			Prepare: toDuration(r.Phases.Prepare),
			Run:     toDuration(r.Phases.Run),
			Collect: toDuration(r.Phases.Collect),
		},
		StdoutBytes:     r.StdoutBytes,
		StderrBytes:     r.StderrBytes,
		StdoutTruncated: r.StdoutTruncated,
		StderrTruncated: r.StderrTruncated,
		PythonVersion:   r.PythonVersion,
		Requirements:    r.Requirements,
		ImageDigest:     r.ImageDigest,
		SessionState:    string(r.SessionState),
		DisplaysDropped: r.DisplaysDropped,
		LogPath:         r.LogPath,
		MemorySamples: each(r.MemorySamples, func(s executor.MemorySample) *pb.MemorySample {
			return &pb.MemorySample{Offset: toDuration(s.Offset), Bytes: s.Bytes}
		}),
		Artifacts:    each(r.Artifacts, toArtifact),
		FilesChanged: each(r.FilesChanged, toArtifact),
		FilesOmitted: r.FilesOmitted,
	}
	if r.ExitCode != nil {
		code := int64(*r.ExitCode)
		out.ExitCode = &code
	}
	if f := r.Failure; f != nil {
		out.Failure = &pb.Failure{Code: string(f.Code), Phase: string(f.Phase), Message: f.Message, Field: f.Field}
	}
	return out
}

func fromResult(r *pb.Result) executor.Result {
	if r == nil {
		return executor.Result{}
	}
	out := executor.Result{
		Status:          executor.Status(r.Status),
		Signal:          r.Signal,
		Wall:            r.Wall.AsDuration(),
		CPU:             r.Cpu.AsDuration(),
		PeakMemoryBytes: r.PeakMemoryBytes,
		Phases: executor.Phases{
			Queue:   r.Phases.GetQueue().AsDuration(),
			Prepare: r.Phases.GetPrepare().AsDuration(),
			Run:     r.Phases.GetRun().AsDuration(),
			Collect: r.Phases.GetCollect().AsDuration(),
		},
		StdoutBytes:     r.StdoutBytes,
		StderrBytes:     r.StderrBytes,
		StdoutTruncated: r.StdoutTruncated,
		StderrTruncated: r.StderrTruncated,
		PythonVersion:   r.PythonVersion,
		Requirements:    r.Requirements,
		ImageDigest:     r.ImageDigest,
		SessionState:    executor.SessionState(r.SessionState),
		DisplaysDropped: r.DisplaysDropped,
		LogPath:         r.LogPath,
		MemorySamples: each(r.MemorySamples, func(s *pb.MemorySample) executor.MemorySample {
			return executor.MemorySample{Offset: s.GetOffset().AsDuration(), Bytes: s.GetBytes()}
		}),
		Artifacts:    each(r.Artifacts, fromArtifact),
		FilesChanged: each(r.FilesChanged, fromArtifact),
		FilesOmitted: r.FilesOmitted,
	}
	if r.ExitCode != nil {
		code := int(*r.ExitCode)
		out.ExitCode = &code
	}
	if f := r.Failure; f != nil {
		out.Failure = &executor.Failure{
			Code: executor.Code(f.Code), Phase: executor.Phase(f.Phase), Message: f.Message, Field: f.Field,
		}
	}
	return out
}
