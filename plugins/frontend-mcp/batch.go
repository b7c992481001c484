package mcpfrontend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// A server must accept batches in revision 2025-03-26 of the protocol, and in no other. mcp-go does not support them. This
// file splits a batch into messages for mcp-go and joins the answers.

const (
	// batchVersion is the revision that has batches.
	batchVersion = mcp.ProtocolVersion20250326
	// maxBatch is the maximum number of messages in a batch.
	maxBatch = 100
)

// errBatch refuses a batch of a client that has negotiated another revision.
const errBatch = "batches are supported in revision " + batchVersion + " only: send one message at a time"

// isBatch reports whether a message is a JSON array.
func isBatch(message []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(message), []byte("[")) }

// splitBatch splits a batch into the messages to handle and the answers to messages that cannot be handled. version is the
// revision that the client has negotiated. A refusal is the answer to the whole batch; the other results are then nil.
func splitBatch(raw []byte, version string) (messages, answers []json.RawMessage, refusal json.RawMessage) {
	var all []json.RawMessage
	switch err := json.Unmarshal(raw, &all); {
	case err != nil:
		return nil, nil, errorAnswer(mcp.PARSE_ERROR, nil, "the batch is not JSON: "+err.Error())
	case version != batchVersion:
		return nil, nil, invalidRequest(nil, errBatch)
	case len(all) == 0:
		return nil, nil, invalidRequest(nil, "a batch must not be empty")
	case len(all) > maxBatch:
		return nil, nil, invalidRequest(nil, fmt.Sprintf("a batch must have at most %d messages (got %d)", maxBatch, len(all)))
	}
	for _, message := range all {
		var e envelope
		_ = json.Unmarshal(message, &e) // mcp-go refuses params of another type
		switch {
		case message[0] != '{':
			answers = append(answers, invalidRequest(nil, "a message must be an object"))
		case e.Method == string(mcp.MethodInitialize):
			answers = append(answers, invalidRequest(e.ID, "initialize must not be part of a batch"))
		default:
			messages = append(messages, message)
		}
	}
	return messages, answers, nil
}

func invalidRequest(id json.RawMessage, text string) json.RawMessage {
	return errorAnswer(mcp.INVALID_REQUEST, id, text)
}

// errorAnswer returns an error response to the message with that id. nil is for a message without an id.
func errorAnswer(code int, id json.RawMessage, text string) json.RawMessage {
	message := mcp.JSONRPCError{JSONRPC: mcp.JSONRPC_VERSION, Error: mcp.NewJSONRPCErrorDetails(code, text, nil)}
	if id != nil {
		message.ID = mcp.NewRequestId(id)
	}
	raw, err := json.Marshal(message)
	if err != nil {
		return json.RawMessage(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid request"}}`)
	}
	return raw
}

// serveBatch handles the messages of a batch concurrently. The response has the form that the revision prescribes: 202
// without a body if there are no answers, a stream if a message has caused a notification, else a JSON array.
func (e *endpoint) serveBatch(w http.ResponseWriter, r *http.Request, raw []byte, version string) {
	messages, answers, refusal := splitBatch(raw, version)
	if refusal != nil {
		refuseWith(w, http.StatusBadRequest, refusal)
		return
	}
	stream := newPostStream(w, r)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, message := range messages {
		wg.Go(func() {
			part := &partResponse{header: http.Header{}}
			e.serveMessage(part, r, message, stream.notify)
			if answer := part.message(); answer != nil {
				mu.Lock()
				defer mu.Unlock()
				answers = append(answers, answer)
			}
		})
	}
	wg.Wait()
	stream.finishBatch(answers)
}

// partResponse records mcp-go's response to one message of a batch.
type partResponse struct {
	header http.Header
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (p *partResponse) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *partResponse) WriteHeader(int) {}

// Write implements http.ResponseWriter.
func (p *partResponse) Write(b []byte) (int, error) { return p.body.Write(b) }

// message returns the answer, or nil if there is none.
func (p *partResponse) message() json.RawMessage {
	raw := bytes.TrimSpace(p.body.Bytes())
	for line := range bytes.Lines(raw) { // if mcp-go has written a stream, its last event is the answer
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			raw = bytes.TrimSpace(data)
		}
	}
	switch {
	case len(raw) == 0:
		return nil
	case !json.Valid(raw):
		return invalidRequest(nil, string(raw))
	}
	return withIsError(raw)
}
