package protocol

import (
	"encoding/binary"

	"github.com/python-executor/python-executor/core/executor"
)

// The operations of a SessionCall.
const (
	CallOpen      = "open"
	CallRestart   = "restart"
	CallClose     = "close"
	CallVariables = "variables"
	CallPath      = "path"
	CallList      = "list"
	CallRead      = "read"
	CallWrite     = "write"
	CallRemove    = "remove"
	// CallStop ends the call of that number, which is answered as always.
	CallStop = "stop"
)

// The windows and bounds of calls.
const (
	// FileWindow is how many bytes of a file may be on their way, in each direction.
	FileWindow = 1 << 20
	// MaxCalls bounds the calls that are served at once.
	MaxCalls = 64
	// MaxListed bounds the files of a list, and MaxVariables the variables. Both are the contract's.
	MaxListed    = 10_000
	MaxVariables = 1000
)

// SessionCall is a request about the session. N tells several apart that are served at once.
type SessionCall struct {
	N     uint32        `json:"n"`
	Op    string        `json:"op"`
	Start *SessionStart `json:"start,omitempty"`
	Wipe  bool          `json:"wipe,omitempty"`
	// Path names a file, or the folder of CallPath.
	Path      string `json:"path,omitempty"`
	Recursive bool   `json:"recursive,omitempty"`
	// Size is that of a file to write; negative if unknown.
	Size int64 `json:"size,omitempty"`
	// Mode has the permission bits of a file to write; 0 means 0644. Folder makes a folder, and no content follows.
	Mode   uint32 `json:"mode,omitempty"`
	Folder bool   `json:"folder,omitempty"`
}

// SessionReply answers a call. A call may have several replies; More is false in the last one.
type SessionReply struct {
	N         uint32              `json:"n"`
	More      bool                `json:"more,omitempty"`
	Code      executor.Code       `json:"code,omitempty"`
	Message   string              `json:"message,omitempty"`
	Field     string              `json:"field,omitempty"`
	File      *executor.File      `json:"file,omitempty"`
	Files     []executor.File     `json:"files,omitempty"`
	Variables []executor.Variable `json:"variables,omitempty"`
}

// Err returns the error that r reports, or nil.
func (r SessionReply) Err() error {
	switch {
	case r.Code == "":
		return nil
	case r.Field != "":
		return &executor.Error{Code: r.Code, Message: r.Message, Fields: []executor.FieldError{{Field: r.Field, Message: r.Message}}}
	default:
		return executor.Errorf(r.Code, "%s", r.Message)
	}
}

// CallHeaderBytes is the size of a call's number, big-endian, which precedes what belongs to the call.
const CallHeaderBytes = 4

// CallPayload returns a payload that belongs to call n.
func CallPayload(n uint32, more ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, n), more...)
}

// CallCredit returns the payload of a SessionCredit frame.
func CallCredit(n uint32, bytes int) []byte {
	return binary.BigEndian.AppendUint32(CallPayload(n), uint32(bytes)) //nolint:gosec // at most a window
}
