package mcpfrontend

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// tool describes a tool. The booleans are the protocol's hints about what a call may do.
type tool struct {
	name, title, description                     string
	tags                                         []string
	readOnly, destructive, idempotent, openWorld bool
}

// addTool adds a tool with arguments A and results R to those of offer. refused makes the result for arguments that cannot be read.
func addTool[A, R any](t *tools, d tool, refused func(error) *mcp.CallToolResult, call func(context.Context, mcp.CallToolRequest, A) (*mcp.CallToolResult, error)) {
	made := mcp.NewTool(d.name,
		mcp.WithToolTitle(d.title), mcp.WithTitleAnnotation(d.title), // clients look in either place
		mcp.WithDescription(d.description), inputSchema[A](t.backend().Capabilities.PythonVersions), outputSchema[R](),
		mcp.WithReadOnlyHintAnnotation(d.readOnly), mcp.WithDestructiveHintAnnotation(d.destructive),
		mcp.WithIdempotentHintAnnotation(d.idempotent), mcp.WithOpenWorldHintAnnotation(d.openWorld),
	)
	if d.tags != nil {
		made.Meta = mcp.NewMetaFromMap(map[string]any{metaTags: d.tags})
	}
	t.offered.tools = append(t.offered.tools, server.ServerTool{Tool: made, Handler: func(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var a A
		if err := bind(request, &a); err != nil {
			return refused(err), nil
		}
		return call(ctx, request, a)
	}})
}

// inputSchema sets the schema of a struct of arguments. For a pointer or a list the library also allows null, which some
// clients cannot read. inputSchema removes null. versions are the values of an argument python_version.
func inputSchema[T any](versions []string) mcp.ToolOption {
	return func(tool *mcp.Tool) {
		mcp.WithInputSchema[T]()(tool)
		tool.RawInputSchema = described(tool.RawInputSchema, versions)
	}
}

// outputSchema sets the schema of a struct of results, without null. No result of a tool has null in it.
func outputSchema[T any]() mcp.ToolOption {
	return func(tool *mcp.Tool) {
		mcp.WithOutputSchema[T]()(tool)
		for _, property := range tool.OutputSchema.Properties {
			clean(property)
		}
	}
}

// described returns the JSON schema raw without the type null, and with the values of python_version.
func described(raw json.RawMessage, versions []string) json.RawMessage {
	var schema any
	if json.Unmarshal(raw, &schema) != nil {
		return raw
	}
	clean(schema)
	withVersions(schema, versions)
	cleaned, err := json.Marshal(schema)
	if err != nil {
		return raw
	}
	return cleaned
}

// clean removes the type null from schema and everything in it.
func clean(schema any) {
	switch v := schema.(type) {
	case map[string]any:
		if types, ok := v["type"].([]any); ok {
			types := slices.DeleteFunc(slices.Clone(types), func(t any) bool { return t == "null" })
			if len(types) == 1 {
				v["type"] = types[0]
			}
		}
		for _, sub := range v {
			clean(sub)
		}
	case []any:
		for _, sub := range v {
			clean(sub)
		}
	}
}
