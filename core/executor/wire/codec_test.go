package wire

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// A plugin of another build, or in another language, reads these messages with an ordinary protobuf library.
func TestTheCodecWritesOrdinaryMessages(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, minUncopied - 1, minUncopied, executor.MaxOutputData} {
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

func TestTheCodecRefusesWhatIsNoMessage(t *testing.T) {
	t.Parallel()
	if err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer{0xff}}, &pb.RunResponse{}); err == nil {
		t.Error("a broken message was read")
	}
}
