package mcpfrontend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// Revision 2025-03-26 of the protocol, and no other, has batches: a server must take them. mcp-go does not know them, so
// what stands in front of it takes them apart, and puts the answers together again.

// batchVersion is the revision that has batches, maxBatch the most messages that one may have.
const (
	batchVersion = mcp.ProtocolVersion20250326
	maxBatch     = 100
)

// errBatch refuses a batch of a client that has negotiated another revision.
const errBatch = "a batch is taken in revision " + batchVersion + " only: send one message at a time"

// isBatch reports whether a message is a JSON array.
func isBatch(message []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(message), []byte("[")) }

// splitBatch takes a batch of a client that has negotiated version apart: what is to be handled, and the answers to what
// cannot be. A refusal answers all of it.
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
		return nil, nil, invalidRequest(nil, fmt.Sprintf("a batch has at most %d messages (got %d)", maxBatch, len(all)))
	}
	for _, message := range all {
		var e envelope
		_ = json.Unmarshal(message, &e) // params of another kind are mcp-go's to refuse
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

// errorAnswer is an error about the message id; nil: about one that has none.
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

// serveBatch has the messages of a batch handled, all at once, and answers as the revision wants it: with nothing if there
// is nothing to answer, else with an array, or, where one of them has sent a notification, with a stream of the answers.
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

// partResponse keeps what mcp-go answers to one message of a batch.
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

// message is the answer; nil: there is none.
func (p *partResponse) message() json.RawMessage {
	raw := bytes.TrimSpace(p.body.Bytes())
	for line := range bytes.Lines(raw) { // an event of mcp-go's own stream, of which the answer is the last
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
	return raw
}
