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
		out.Body = &pb.Event_Queued{Queued: to[pb.Queued](b)}
	case executor.Progress:
		out.Body = &pb.Event_Progress{Progress: to[pb.Progress](b)}
	case executor.Started:
		out.Body = &pb.Event_Started{Started: to[pb.Started](b)}
	case executor.Output: // most events are, and this is quicker
		out.Body = &pb.Event_Output{Output: &pb.Output{Stream: string(b.Stream), Offset: b.Offset, Data: b.Data, Earlier: b.Earlier}}
	case executor.Display:
		out.Body = &pb.Event_Display{Display: to[pb.Display](b)}
	case executor.Finished:
		out.Body = &pb.Event_Finished{Finished: to[pb.Finished](b)}
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
		out.Body = from[executor.Queued](b.Queued)
	case *pb.Event_Progress:
		out.Body = from[executor.Progress](b.Progress)
	case *pb.Event_Started:
		out.Body = from[executor.Started](b.Started)
	case *pb.Event_Output:
		o := b.Output
		out.Body = executor.Output{
			Stream: executor.Stream(o.GetStream()), Offset: o.GetOffset(), Data: o.GetData(), Earlier: o.GetEarlier(),
		}
	case *pb.Event_Display:
		out.Body = from[executor.Display](b.Display)
	case *pb.Event_Finished:
		out.Body = from[executor.Finished](b.Finished)
	case *pb.Event_Unknown:
		out.Body = executor.Unknown{Name: executor.Kind(e.GetKind()), Raw: json.RawMessage(b.Unknown.GetRaw())}
	default:
		out.Body = executor.Unknown{Name: executor.Kind(e.GetKind())}
	}
	return out
}
