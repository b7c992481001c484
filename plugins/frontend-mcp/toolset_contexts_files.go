package mcpfrontend

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/python-executor/python-executor/core/executor"
)

// encodingBase64 is the encoding of content that is not text.
const encodingBase64 = "base64"

type writeContextFileArgs struct {
	ContextID string `json:"context_id"`
	Path      string `json:"path" jsonschema:"Like data/rows.csv"`
	Content   string `json:"content"`
	Encoding  string `json:"encoding,omitempty" jsonschema:"text or base64"`
}

type writeContextFileResult struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
}

type readContextFileArgs struct {
	ContextID string `json:"context_id"`
	Path      string `json:"path"`
	Offset    int64  `json:"offset,omitempty" jsonschema:"The last next_offset"`
}

type readContextFileResult struct {
	Path       string `json:"path"`
	SizeBytes  int64  `json:"size_bytes"`
	Content    string `json:"content,omitempty"`
	Encoding   string `json:"encoding,omitempty"`
	NextOffset int64  `json:"next_offset,omitempty"`
}

// addFileTools adds the tools that write and read files of a context.
func (c contexts) addFileTools(bad func(error) *mcp.CallToolResult) {
	addTool[writeContextFileArgs, writeContextFileResult](c.tools, tool{
		name: "write_context_file", destructive: true, idempotent: true,
		description: "Write a file into the work folder of a context's code.",
	}, bad, c.writeFile)
	addTool[readContextFileArgs, readContextFileResult](c.tools, tool{
		name: "read_context_file", readOnly: true,
		description: "Read a context's file: images as images, long text in pieces.",
	}, bad, c.readFile)
}

// fileArguments returns what is wrong with the arguments of a file tool; nil if nothing is.
func fileArguments(id, path string) *mcp.CallToolResult {
	switch {
	case id == "":
		return contextError(codeInvalidParams, "context_id: must not be empty")
	case path == "":
		return contextError(codeInvalidParams, "path: must not be empty")
	}
	return nil
}

func (c contexts) writeFile(ctx context.Context, _ mcp.CallToolRequest, a writeContextFileArgs) (*mcp.CallToolResult, error) {
	if refused := fileArguments(a.ContextID, a.Path); refused != nil {
		return refused, nil
	}
	data := []byte(a.Content)
	switch a.Encoding {
	case "", "text":
	case encodingBase64:
		decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(a.Content), ""))
		if err != nil {
			return contextError(codeInvalidParams, "content: must be base64 (%v)", err), nil
		}
		data = decoded
	default:
		return contextError(codeInvalidParams, "encoding: must be one of text, base64 (got %q)", a.Encoding), nil
	}
	f, err := c.svc.WriteFile(ctx, a.ContextID, executor.File{Path: a.Path, SizeBytes: int64(len(data))}, bytes.NewReader(data))
	if err != nil {
		return c.contextFailure(ctx, "write_context_file", a.ContextID, err), nil
	}
	return structured(writeContextFileResult{Path: f.Path, SizeBytes: f.SizeBytes}, "")
}

func (c contexts) readFile(ctx context.Context, _ mcp.CallToolRequest, a readContextFileArgs) (*mcp.CallToolResult, error) {
	if refused := fileArguments(a.ContextID, a.Path); refused != nil {
		return refused, nil
	}
	f, content, err := c.svc.ReadFile(ctx, a.ContextID, a.Path)
	if err != nil {
		if executor.CodeOf(err) == executor.NotFound {
			if s, getErr := c.svc.GetSession(ctx, a.ContextID); getErr == nil && s.Status != executor.SessionClosed {
				return contextError(codeInvalidParams, "path: there is no file %q in the context", a.Path), nil
			}
		}
		return c.contextFailure(ctx, "read_context_file", a.ContextID, err), nil
	}
	defer content.Close() //nolint:errcheck // read only
	if a.Offset < 0 || a.Offset > f.SizeBytes {
		return contextError(codeInvalidParams, "offset: must be between 0 and %d, the size of the file (got %d)", f.SizeBytes, a.Offset), nil
	}
	out := readContextFileResult{Path: f.Path, SizeBytes: f.SizeBytes}
	if kind := fileType(f.Path, nil); isPicture(kind) && a.Offset == 0 {
		if f.SizeBytes > maxImageBytes {
			return contextError(codeInvalidParams, "path: an image must have at most %d bytes to be read (%s has %d): make it smaller",
				maxImageBytes, a.Path, f.SizeBytes), nil
		}
		data, err := io.ReadAll(io.LimitReader(content, maxImageBytes))
		if err != nil {
			return c.contextFailure(ctx, "read_context_file", a.ContextID, fmt.Errorf("read %s: %w", a.Path, err)), nil
		}
		return structured(out, "", mcp.NewImageContent(base64.StdEncoding.EncodeToString(data), kind))
	}
	_, err = io.CopyN(io.Discard, content, a.Offset)
	data := []byte(nil)
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(content, min(int64(c.config.MaxResultBytes), f.SizeBytes-a.Offset)))
	}
	if err != nil {
		return c.contextFailure(ctx, "read_context_file", a.ContextID, fmt.Errorf("read %s: %w", a.Path, err)), nil
	}
	end := a.Offset + int64(len(data))
	whole := end >= f.SizeBytes
	if out.Content = string(data); !whole {
		out.Content = trimPartialRune(out.Content)
	}
	if isText(data) && utf8.ValidString(out.Content) {
		end = a.Offset + int64(len(out.Content))
	} else {
		out.Content, out.Encoding = base64.StdEncoding.EncodeToString(data), encodingBase64
	}
	if end < f.SizeBytes {
		out.NextOffset = end
	}
	return structured(out, "")
}

// isPicture reports whether clients show a MIME type as an image.
func isPicture(mime string) bool {
	return mime == "image/png" || mime == "image/jpeg" || mime == "image/gif" || mime == "image/webp"
}
