package wire

import (
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/runtime/protoiface"

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

// Unmarshal implements encoding.CodecV2. The bytes in v are those of one buffer, which is new unless v is a runMessage.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *runMessage:
		return readMessage(m.take(data), &m.RunResponse)
	case protobuf.Message:
		return readMessage(data.Materialize(), m)
	default:
		return c.CodecV2.Unmarshal(data, v)
	}
}

// readMessage reads raw into m, whose bytes are then those of raw.
func readMessage(raw []byte, m protobuf.Message) error {
	r := m.ProtoReflect()
	_, err := r.ProtoMethods().Unmarshal(protoiface.UnmarshalInput{
		Message: r, Buf: raw, Flags: protoiface.UnmarshalAliasBuffer,
		Resolver: protoregistry.GlobalTypes, Depth: protowire.DefaultRecursionLimit,
	})
	return err
}

// runMessage is a RunResponse whose buffer is used again.
type runMessage struct {
	pb.RunResponse

	buffer *[]byte // nil if the message is small
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
