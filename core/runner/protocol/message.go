package protocol

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// Hello is the first frame of a host.
type Hello struct {
	Version int    `json:"version"`
	Config  Config `json:"config"`
	// Resume takes over a runner that another host used. With ExecutionID the host follows that Execution, and has its output
	// up to the offsets. Without it the host follows none.
	Resume      bool   `json:"resume,omitempty"`
	ExecutionID string `json:"execution_id,omitempty"`
	Stdout      int64  `json:"stdout,omitempty"`
	Stderr      int64  `json:"stderr,omitempty"`
	// Nonce is what the runner sends in front of its reply, so that the host finds the reply in what it reads.
	Nonce []byte `json:"nonce,omitempty"`
}

// KernelGVisor is the name of gVisor's kernel in HelloReply.
const KernelGVisor = "gvisor"

// HelloReply answers Hello and Ping.
type HelloReply struct {
	Version int `json:"version"`
	// Epoch is a number that the runner draws when it starts. It tells runners apart.
	Epoch uint64 `json:"epoch"`
	PID   int    `json:"pid"`
	// ExecutionID is the current Execution, or the last one as long as its Result is held; empty if there is none.
	ExecutionID string `json:"execution_id,omitempty"`
	// Running reports that the runner has not said Exited of it.
	Running bool `json:"running,omitempty"`
	// KillGrace is its Limits.KillGrace: a host that did not start it needs to know how long a Cancel may take.
	KillGrace time.Duration `json:"kill_grace,omitempty"`
	// Events is how many of its events are acknowledged.
	Events int64 `json:"events,omitempty"`
	// Silence is Config.Silence.
	Silence time.Duration `json:"silence,omitempty"`
	// WorkspacePipe is the descriptor of the runner that the host may open; 0 without one, or when it was used.
	WorkspacePipe int `json:"workspace_pipe,omitempty"`
	// Kernel is KernelGVisor on gVisor, and empty on Linux.
	Kernel string `json:"kernel,omitempty"`
	// Error says why the runner refuses the Config, and ends, or refuses to resume, and goes on. An empty Code means invalid.
	Error string        `json:"error,omitempty"`
	Code  executor.Code `json:"code,omitempty"`
}

// Started is the payload of a Started frame. In a session it also tells how much of the output was written before the
// Execution began.
type Started struct {
	executor.Started
	EarlierStdout int64 `json:"earlier_stdout,omitempty"`
	EarlierStderr int64 `json:"earlier_stderr,omitempty"`
	// Kept says that the runner keeps the Workspace of Start.Tree.
	Kept bool `json:"kept,omitempty"`
}

// ArtifactHeader announces one file.
type ArtifactHeader struct {
	Path    string    `json:"path"`
	Size    int64     `json:"size"`
	Mode    int64     `json:"mode"`
	ModTime time.Time `json:"mod_time"`
}

// Channel names a flow of bytes that needs credit.
type Channel uint8

const (
	ChannelWorkspace Channel = 1
	ChannelStdin     Channel = 2
	ChannelArtifact  Channel = 3
)

// CreditPayload returns the payload of a Credit frame.
func CreditPayload(c Channel, n int) []byte {
	return binary.BigEndian.AppendUint32([]byte{byte(c)}, uint32(n)) //nolint:gosec // at most a window
}

// ParseCredit reads the payload of a Credit frame.
func ParseCredit(p []byte) (Channel, int64, error) {
	if len(p) != 5 {
		return 0, 0, fmt.Errorf("%w: credit of %d bytes", ErrFrame, len(p))
	}
	c := Channel(p[0])
	if c < ChannelWorkspace || c > ChannelArtifact {
		return 0, 0, fmt.Errorf("%w: credit for channel %d", ErrFrame, c)
	}
	return c, int64(binary.BigEndian.Uint32(p[1:])), nil
}

// streamNumber returns a stream as it stands in an Output frame: its file descriptor.
func streamNumber(s executor.Stream) byte {
	if s == executor.Stderr {
		return 2
	}
	return 1
}

// PutOutputHeader writes the header of an Output\'s data into p.
func PutOutputHeader(p []byte, s executor.Stream, offset int64) {
	p[0] = streamNumber(s)
	binary.BigEndian.PutUint64(p[1:], uint64(offset)) //nolint:gosec // offsets are not negative
}

// ParseOutput reads the payload of an Output frame. The data is a part of p.
func ParseOutput(p []byte) (executor.Output, error) {
	if len(p) <= OutputHeaderBytes {
		return executor.Output{}, fmt.Errorf("%w: output of %d bytes", ErrFrame, len(p))
	}
	o := executor.Output{Stream: executor.Stdout, Offset: int64(binary.BigEndian.Uint64(p[1:])), Data: p[OutputHeaderBytes:]} //nolint:gosec // checked below
	switch p[0] {
	case 1:
	case 2:
		o.Stream = executor.Stderr
	default:
		return executor.Output{}, fmt.Errorf("%w: output on stream %d", ErrFrame, p[0])
	}
	if o.Offset < 0 {
		return executor.Output{}, fmt.Errorf("%w: negative offset", ErrFrame)
	}
	return o, nil
}

// Acknowledged is how much of an Execution the host has in its log.
type Acknowledged struct {
	Streams [2]int64 // offsets
	// Events counts events, which are Displays. A host that resumes counts on from HelloReply.Events.
	Events int64
}

// Payload returns a as the payload of an Ack frame.
func (a Acknowledged) Payload() []byte {
	p := make([]byte, 0, ackBytes)
	for _, n := range []int64{a.Streams[0], a.Streams[1], a.Events} {
		p = binary.BigEndian.AppendUint64(p, uint64(n)) //nolint:gosec // counts are not negative
	}
	return p
}

const ackBytes = 24

// ParseAck reads the payload of an Ack frame.
func ParseAck(p []byte) (a Acknowledged, err error) {
	if len(p) != ackBytes {
		return Acknowledged{}, fmt.Errorf("%w: ack of %d bytes", ErrFrame, len(p))
	}
	for i, n := range []*int64{&a.Streams[0], &a.Streams[1], &a.Events} {
		if *n = int64(binary.BigEndian.Uint64(p[8*i:])); *n < 0 { //nolint:gosec // checked
			return Acknowledged{}, fmt.Errorf("%w: negative ack", ErrFrame)
		}
	}
	return a, nil
}

// EncodeResult returns r as the payload of an Exited frame. A Result that is too long for a frame loses its lists, and gets
// a Failure that gives the reason. Otherwise the host would wait for ever.
func EncodeResult(r executor.Result) ([]byte, error) {
	raw, err := json.Marshal(r)
	maxBytes := MaxPayload(FrameExited)
	if err != nil || len(raw) <= maxBytes {
		return raw, err
	}
	r.Artifacts, r.FilesChanged, r.MemorySamples, r.Requirements = nil, nil, nil, nil
	r.Failure = &executor.Failure{
		Code: executor.Internal, Phase: executor.PhaseCollect, Message: fmt.Sprintf("the result has %d bytes, at most %d can be sent", len(raw), maxBytes),
	}
	return json.Marshal(r)
}

// AppendOutput appends an Output frame to buf. stream is a StreamIndex.
func AppendOutput(buf []byte, stream int, offset int64, data []byte) []byte {
	at := len(buf)
	buf = append(buf, make([]byte, HeaderBytes+OutputHeaderBytes)...)
	PutHeader(buf[at:], FrameOutput, OutputHeaderBytes+len(data))
	PutOutputHeader(buf[at+HeaderBytes:], [2]executor.Stream{executor.Stdout, executor.Stderr}[stream], offset)
	return append(buf, data...)
}

// StreamIndex returns 0 for stdout and 1 for stderr.
func StreamIndex(s executor.Stream) int {
	return int(streamNumber(s)) - 1
}

// OutOfMemory returns the Failure of a program that needed more than limit bytes of memory.
func OutOfMemory(limit int64) *executor.Failure {
	return exhausted("config.memory_mb", "the program needed more memory than", limit)
}

// DiskFull returns the Failure of a program whose files needed more than limit bytes.
func DiskFull(limit int64) *executor.Failure {
	return exhausted("config.disk_mb", "the program's disk was full; it holds", limit)
}

// exhausted returns a Failure that names a limit. A limit of 0 is unknown.
func exhausted(field, what string, limit int64) *executor.Failure {
	if limit <= 0 {
		return &executor.Failure{Code: executor.Exhausted, Phase: executor.PhaseRun, Field: field, Message: field + ": " + what + " it may have; raise the limit"}
	}
	size := fmt.Sprintf("%d MB", limit>>20)
	if limit%(1<<20) != 0 {
		size = fmt.Sprintf("%d bytes", limit)
	}
	return &executor.Failure{Code: executor.Exhausted, Phase: executor.PhaseRun, Field: field, Message: field + ": " + what + " " + size + "; raise the limit"}
}
