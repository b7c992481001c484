package wire

import (
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// codec writes the same messages as gRPC's codec, and copies their bytes less often. gRPC's codec takes a buffer of 1 MiB for every
// message of more than 32 KiB, and clears it.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// minUncopied is the least Data that is sent from where it lies. Less is quicker to copy.
const minUncopied = 16 << 10

// The numbers of the fields around Output.Data.
const (
	fieldRunEvent    protowire.Number = 1
	fieldEventOutput protowire.Number = 7
	fieldOutputData  protowire.Number = 3
)

// Marshal implements encoding.CodecV2. The Data of a large Output must not change until the event is acknowledged.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*pb.RunResponse)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	event := m.GetEvent()
	output := event.GetOutput()
	data := output.GetData()
	if len(data) < minUncopied {
		return c.CodecV2.Marshal(v)
	}
	inner, err := protobuf.Marshal(&pb.Output{Stream: output.GetStream(), Offset: output.GetOffset(), Earlier: output.GetEarlier()})
	if err != nil {
		return nil, err
	}
	outer, err := protobuf.Marshal(&pb.Event{Seq: event.GetSeq(), Time: event.GetTime(), Kind: event.GetKind()})
	if err != nil {
		return nil, err
	}
	// Data is the last field of each message around it.
	inner = appendHead(inner, fieldOutputData, len(data))
	outer = append(appendHead(outer, fieldEventOutput, len(inner)+len(data)), inner...)
	head := append(appendHead(nil, fieldRunEvent, len(outer)+len(data)), outer...)
	return mem.BufferSlice{mem.SliceBuffer(head), mem.SliceBuffer(data)}, nil
}

// appendHead appends the head of a field of n bytes.
func appendHead(b []byte, field protowire.Number, n int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(n)) //nolint:gosec // a length
}

// Unmarshal implements encoding.CodecV2. The Data of a large Output in a runMessage lies in the buffer of that message.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *runMessage:
		raw := m.take(data)
		if event := largeOutput(raw); event != nil {
			m.Message = &pb.RunResponse_Event{Event: event}
			return nil
		}
		defer m.release() // protobuf copies what it keeps
		return protobuf.Unmarshal(raw, &m.RunResponse)
	case protobuf.Message:
		if len(data) == 1 {
			return protobuf.Unmarshal(data[0].ReadOnlyData(), m)
		}
		return protobuf.Unmarshal(data.Materialize(), m)
	default:
		return c.CodecV2.Unmarshal(data, v)
	}
}

// largeOutput reads a message as Marshal writes it for a large Output. The Data of the Output is that of raw, where protobuf would
// copy it. It returns nil for any other message.
func largeOutput(raw []byte) *pb.Event {
	rest, inner := cutLast(raw, fieldRunEvent)
	head, outer := cutLast(inner, fieldEventOutput)
	outputHead, data := cutLast(outer, fieldOutputData)
	if len(rest) > 0 || len(data) < minUncopied {
		return nil
	}
	event, output := &pb.Event{}, &pb.Output{}
	if protobuf.Unmarshal(head, event) != nil || protobuf.Unmarshal(outputHead, output) != nil {
		return nil
	}
	output.Data = data
	event.Body = &pb.Event_Output{Output: output}
	return event
}

// cutLast cuts a message in front of its last field. content is what that field has if it is the only one of that number, else nil.
func cutLast(message []byte, field protowire.Number) (before, content []byte) {
	for at := 0; at < len(message); {
		number, kind, tag := protowire.ConsumeTag(message[at:])
		if tag < 0 {
			return nil, nil
		}
		if number == field && kind == protowire.BytesType {
			content, n := protowire.ConsumeBytes(message[at+tag:])
			if n < 0 || at+tag+n != len(message) {
				return nil, nil
			}
			return message[:at], content
		}
		n := protowire.ConsumeFieldValue(number, kind, message[at+tag:])
		if n < 0 {
			return nil, nil
		}
		at += tag + n
	}
	return nil, nil
}

// runMessage is a RunResponse. The Data of a large Output lies in a buffer that is used again.
type runMessage struct {
	pb.RunResponse

	buffer *[]byte // nil if there is no such Data
}

// runBuffers has buffers for messages with a whole Output.
var runBuffers = sync.Pool{New: func() any {
	b := make([]byte, executor.MaxOutputData+1<<10)
	return &b
}}

// take returns a buffer with data.
func (m *runMessage) take(data mem.BufferSlice) []byte {
	pooled := runBuffers.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
	if n := data.Len(); n < len(*pooled)/2 || n > len(*pooled) {
		runBuffers.Put(pooled)
		return data.Materialize()
	}
	m.buffer = pooled
	return (*pooled)[:data.CopyTo(*pooled)]
}

// release gives the buffer back. The bytes of the message must not be used after it.
func (m *runMessage) release() {
	if m.buffer != nil {
		runBuffers.Put(m.buffer)
		m.buffer = nil
	}
}
