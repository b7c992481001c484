package runner

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// hello is the host's first frame, and the first on a connection that takes a runner over.
type hello struct {
	Version int `json:"version"`
	// Epoch is the runner the host expects; 0: any. A runner of another epoch refuses.
	Epoch  uint64 `json:"epoch,omitempty"`
	Config Config `json:"config"`
	// Resume: a host followed this runner before. With ExecutionID it wants that one, and has its output up to these
	// offsets; without, it wants none.
	Resume      bool   `json:"resume,omitempty"`
	ExecutionID string `json:"execution_id,omitempty"`
	Stdout      int64  `json:"stdout,omitempty"`
	Stderr      int64  `json:"stderr,omitempty"`
	// Nonce: the runner sends these bytes, bare, before its reply, so that the host finds it in what it reads.
	Nonce []byte `json:"nonce,omitempty"`
}

// KernelGVisor is what Conn.Kernel says of gVisor's kernel.
const KernelGVisor = "gvisor"

// helloReply answers hello and ping.
type helloReply struct {
	Version int `json:"version"`
	// Epoch is drawn when a runner starts: another epoch is another runner, which knows nothing of the first one's work.
	Epoch uint64 `json:"epoch"`
	PID   int    `json:"pid"`
	// ExecutionID of the Execution at hand; empty if there is none.
	ExecutionID string `json:"execution_id,omitempty"`
	// Running: that one has not been answered with Exited yet.
	Running bool `json:"running,omitempty"`
	// KillGrace is that Execution's, so that a host that did not start it knows how long a Cancel may take.
	KillGrace time.Duration `json:"kill_grace,omitempty"`
	// Events is how many events of that one were acknowledged.
	Events int64 `json:"events,omitempty"`
	// Silence is Config.Silence as it holds.
	Silence time.Duration `json:"silence,omitempty"`
	// Door is the descriptor that a DoorOpener is to open; 0: there is none, or it was used.
	Door int `json:"door,omitempty"`
	// Kernel is what it runs on, if that is not Linux itself: KernelGVisor.
	Kernel string `json:"kernel,omitempty"`
	// Error: the runner refuses the Config and ends, or refuses to resume and goes on. Code is invalid if empty.
	Error string        `json:"error,omitempty"`
	Code  executor.Code `json:"code,omitempty"`
}

// startedFrame is a Started, and of an Execution in a session how much of its output was written before it.
type startedFrame struct {
	executor.Started
	EarlierStdout int64 `json:"earlier_stdout,omitempty"`
	EarlierStderr int64 `json:"earlier_stderr,omitempty"`
}

// artifactHeader announces one file.
type artifactHeader struct {
	Path    string    `json:"path"`
	Size    int64     `json:"size"`
	Mode    int64     `json:"mode"`
	ModTime time.Time `json:"mod_time"`
}

// channel names a flow of bytes that has credit.
type channel uint8

const (
	channelWorkspace channel = 1
	channelStdin     channel = 2
	channelArtifact  channel = 3
)

func creditPayload(c channel, n int) []byte {
	return binary.BigEndian.AppendUint32([]byte{byte(c)}, uint32(n)) //nolint:gosec // at most a window
}

func parseCredit(p []byte) (channel, int64, error) {
	if len(p) != 5 {
		return 0, 0, fmt.Errorf("%w: credit of %d bytes", errFrame, len(p))
	}
	c := channel(p[0])
	if c < channelWorkspace || c > channelArtifact {
		return 0, 0, fmt.Errorf("%w: credit for channel %d", errFrame, c)
	}
	return c, int64(binary.BigEndian.Uint32(p[1:])), nil
}

// streamNumbers are the streams as they stand in an Output frame: the file descriptors.
func streamNumber(s executor.Stream) byte {
	if s == executor.Stderr {
		return 2
	}
	return 1
}

func putOutputHeader(p []byte, s executor.Stream, offset int64) {
	p[0] = streamNumber(s)
	binary.BigEndian.PutUint64(p[1:], uint64(offset)) //nolint:gosec // offsets are not negative
}

func parseOutput(p []byte) (executor.Output, error) {
	if len(p) <= outputHeader {
		return executor.Output{}, fmt.Errorf("%w: output of %d bytes", errFrame, len(p))
	}
	o := executor.Output{Stream: executor.Stdout, Offset: int64(binary.BigEndian.Uint64(p[1:])), Data: p[outputHeader:]} //nolint:gosec // checked below
	switch p[0] {
	case 1:
	case 2:
		o.Stream = executor.Stderr
	default:
		return executor.Output{}, fmt.Errorf("%w: output on stream %d", errFrame, p[0])
	}
	if o.Offset < 0 {
		return executor.Output{}, fmt.Errorf("%w: negative offset", errFrame)
	}
	return o, nil
}

// acked says how much of an Execution the host has in its log.
type acked struct {
	streams [2]int64 // offsets
	// events counts the frames that outbox.event has sent; those of a resumed Execution from the first that was not
	// acknowledged on, as HelloReply says.
	events int64
}

func (a acked) payload() []byte {
	p := make([]byte, 0, ackBytes)
	for _, n := range []int64{a.streams[0], a.streams[1], a.events} {
		p = binary.BigEndian.AppendUint64(p, uint64(n)) //nolint:gosec // counts are not negative
	}
	return p
}

const ackBytes = 24

func parseAck(p []byte) (a acked, err error) {
	if len(p) != ackBytes {
		return acked{}, fmt.Errorf("%w: ack of %d bytes", errFrame, len(p))
	}
	for i, n := range []*int64{&a.streams[0], &a.streams[1], &a.events} {
		if *n = int64(binary.BigEndian.Uint64(p[8*i:])); *n < 0 { //nolint:gosec // checked
			return acked{}, fmt.Errorf("%w: negative ack", errFrame)
		}
	}
	return a, nil
}
