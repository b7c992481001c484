package wire

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/runtime/protoiface"

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

// Unmarshal implements encoding.CodecV2. The bytes in v are those of one new buffer.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(protobuf.Message)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	r := m.ProtoReflect()
	_, err := r.ProtoMethods().Unmarshal(protoiface.UnmarshalInput{
		Message: r, Buf: data.Materialize(), Flags: protoiface.UnmarshalAliasBuffer,
		Resolver: protoregistry.GlobalTypes, Depth: protowire.DefaultRecursionLimit,
	})
	return err
}
