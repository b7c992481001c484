package wire

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// A plugin of another build, or in another language, reads these messages with an ordinary protobuf library.
func TestTheCodecWritesOrdinaryMessages(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, minUncopied - 1, minUncopied, executor.MaxOutputData, 2 * executor.MaxOutputData} {
		output := &pb.Output{Stream: "stderr", Offset: 1 << 40, Data: bytes.Repeat([]byte{7}, size), Earlier: true}
		event := &pb.Event{Seq: 3, Time: &timestamppb.Timestamp{Seconds: 5}, Kind: "output", Body: &pb.Event_Output{Output: output}}
		for name, m := range map[string]*pb.RunResponse{
			"event":    {Message: &pb.RunResponse_Event{Event: event}},
			"trailing": {Message: &pb.RunResponse_Trailing{Trailing: event}},
		} {
			sent, err := newCodec().Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			var plain pb.RunResponse
			if err := proto.Unmarshal(sent.Materialize(), &plain); err != nil || !proto.Equal(&plain, m) {
				t.Errorf("%s of %d bytes: protobuf reads another message: %v", name, size, err)
			}
			ordinary, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			for _, form := range []mem.BufferSlice{sent, {mem.SliceBuffer(ordinary[:len(ordinary)/2]), mem.SliceBuffer(ordinary[len(ordinary)/2:])}} {
				var got pb.RunResponse
				if err := newCodec().Unmarshal(form, &got); err != nil || !proto.Equal(&got, m) {
					t.Errorf("%s of %d bytes: the codec reads another message: %v", name, size, err)
				}
				var run runMessage
				if err := newCodec().Unmarshal(form, &run); err != nil || !proto.Equal(&run.RunResponse, m) {
					t.Errorf("%s of %d bytes: a Run reads another message: %v", name, size, err)
				}
				if name == "trailing" && run.buffer != nil {
					t.Errorf("%s of %d bytes: nothing lies in the buffer, and it was not given back", name, size)
				}
			}
		}
	}
}

// gRPC uses its buffers again for the next message. The caller of Trail may change its Data when Trail returns.
func TestTheCodecKeepsNothingOfBuffersThatAreUsedAgain(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte{7}, executor.MaxOutputData)
	m := &pb.RunResponse{Message: &pb.RunResponse_Trailing{Trailing: &pb.Event{Body: &pb.Event_Output{Output: &pb.Output{Data: data}}}}}
	sent, err := newCodec().Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	data[0] = 8
	raw := sent.Materialize()
	var got pb.RunResponse
	if err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, &got); err != nil {
		t.Fatal(err)
	}
	clear(raw)
	if read := got.GetTrailing().GetOutput().GetData(); len(read) != len(data) || read[0] != 7 || read[1] != 7 {
		t.Errorf("the message changed with a buffer: %d bytes, %v", len(read), read[:2])
	}
}

func TestTheDataOfALargeOutputIsNotCopiedAgain(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte{7}, executor.MaxOutputData)
	sent, err := newCodec().Marshal(&pb.RunResponse{Message: &pb.RunResponse_Event{Event: &pb.Event{Body: &pb.Event_Output{Output: &pb.Output{Data: data}}}}})
	if err != nil {
		t.Fatal(err)
	}
	var got runMessage
	if err := newCodec().Unmarshal(sent, &got); err != nil {
		t.Fatal(err)
	}
	if read := got.GetEvent().GetOutput().GetData(); got.buffer == nil || &read[0] != &(*got.buffer)[sent.Len()-len(data)] {
		t.Errorf("%d bytes of Data lie elsewhere", len(read))
	}
	if got.release(); got.buffer != nil {
		t.Error("the buffer was not given back")
	}
}

// These messages are not as Marshal writes them. Each is read as protobuf reads it.
func TestTheCodecReadsFieldsInAnyOrder(t *testing.T) {
	t.Parallel()
	large := bytes.Repeat([]byte{7}, minUncopied)
	field := func(number protowire.Number, content []byte) []byte {
		return append(appendHead(nil, number, len(content)), content...)
	}
	output := field(fieldOutputData, large)
	event := field(fieldEventOutput, output)
	for name, raw := range map[string][]byte{
		"data twice":             field(fieldRunEvent, field(fieldEventOutput, slices.Concat(field(fieldOutputData, []byte("x")), output))),
		"output twice":           field(fieldRunEvent, slices.Concat(field(fieldEventOutput, field(1, []byte("stdout"))), event)),
		"event twice":            slices.Concat(field(fieldRunEvent, field(3, []byte("output"))), field(fieldRunEvent, event)),
		"stream last":            field(fieldRunEvent, field(fieldEventOutput, slices.Concat(output, field(1, []byte("stdout"))))),
		"kind last":              field(fieldRunEvent, slices.Concat(event, field(3, []byte("output")))),
		"a result last":          slices.Concat(field(fieldRunEvent, event), field(5, nil)),
		"a result first":         slices.Concat(field(5, nil), field(fieldRunEvent, event)),
		"an unknown field first": slices.Concat(field(99, []byte("x")), field(fieldRunEvent, event)),
		"an unknown field":       field(fieldRunEvent, slices.Concat(field(99, []byte("x")), event)),
		"another body":           field(fieldRunEvent, slices.Concat(field(4, nil), event)),
		"no UTF-8":               field(fieldRunEvent, slices.Concat(field(3, []byte{0xff}), event)),
		"cut":                    field(fieldRunEvent, event)[:minUncopied],
	} {
		var want pb.RunResponse
		wantErr := proto.Unmarshal(raw, &want)
		var got runMessage
		err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, &got)
		if (err == nil) != (wantErr == nil) || err == nil && !proto.Equal(&got.RunResponse, &want) {
			t.Errorf("%s: the codec reads another message than protobuf: %v, want %v", name, err, wantErr)
		}
	}
}

func TestTheCodecRefusesWhatIsNoMessage(t *testing.T) {
	t.Parallel()
	if err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer{0xff}}, &pb.RunResponse{}); err == nil {
		t.Error("a broken message was read")
	}
}

// answers is the stream of a Run that has one event and a Result.
type answers struct {
	grpc.BidiStreamingClient[pb.RunRequest, pb.RunResponse]
	seen []*runMessage
	wire mem.BufferSlice
}

func (a *answers) Send(*pb.RunRequest) error { return nil }

func (a *answers) RecvMsg(m any) error {
	run := m.(*runMessage) //nolint:forcetypeassert // a runCall receives nothing else
	if a.seen = append(a.seen, run); len(a.seen) == 1 {
		return newCodec().Unmarshal(a.wire, run)
	}
	run.Message = &pb.RunResponse_Result{}
	return nil
}

// sinkFunc is a Sink without Artifacts.
type sinkFunc func(executor.Event) error

func (f sinkFunc) Emit(e executor.Event) error           { return f(e) }
func (f sinkFunc) Artifact(*tar.Header, io.Reader) error { return nil }

// A sink that fails may have given up a call that still reads the Data.
func TestTheBufferOfAnOutputIsUsedAgainWhenItsSinkIsDone(t *testing.T) {
	t.Parallel()
	for _, broken := range []error{nil, errors.New("broken")} {
		data := bytes.Repeat([]byte{7}, executor.MaxOutputData)
		sent, err := newCodec().Marshal(&pb.RunResponse{Message: &pb.RunResponse_Event{Event: &pb.Event{Body: &pb.Event_Output{Output: &pb.Output{Data: data}}}}})
		if err != nil {
			t.Fatal(err)
		}
		stream := &answers{wire: sent}
		emitted := 0
		c := &runCall{stream: stream, ctx: t.Context(), sink: sinkFunc(func(executor.Event) error {
			emitted++
			if stream.seen[0].buffer == nil {
				t.Error("the buffer is given back before the sink is done")
			}
			return broken
		})}
		if _, err := c.follow(); err != nil || emitted != 1 {
			t.Errorf("%d events, error %v", emitted, err)
		}
		if kept := stream.seen[0].buffer != nil; kept != (broken != nil) {
			t.Errorf("after the sink's error %v the buffer is kept: %t", broken, kept)
		}
	}
}
