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
		mcp.WithDescription(d.description), inputSchema[A](t.backend().Capabilities.Pythons(), defaults[d.name]), outputSchema[R](),
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
// clients cannot read. inputSchema removes null. versions are the values of an argument python_version, and defaults the defaults of the
// arguments that have one.
func inputSchema[T any](versions []string, defaults map[string]any) mcp.ToolOption {
	return func(tool *mcp.Tool) {
		mcp.WithInputSchema[T]()(tool)
		tool.RawInputSchema = described(tool.RawInputSchema, versions, defaults)
	}
}

// defaults holds the defaults of the arguments, by tool.
var defaults = map[string]map[string]any{
	"run_script_in_dir":                  {"use_uv": true, "timeout_seconds": defaultTimeoutSeconds},
	"run_script_with_dependencies":       {"timeout_seconds": defaultTimeoutSeconds},
	"benchmark_script":                   {"timeout_seconds": defaultTimeoutSeconds, "sample_interval": defaultSampleInterval},
	"run_script_in_dir_async":            {"use_uv": true, "stream": false},
	"run_script_with_dependencies_async": {"stream": false},
	"create_context":                     {"language": "python", "description": ""},
	"restart_context":                    {"wipe": false},
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

// described returns the JSON schema raw without the type null, and with the values of python_version and the defaults.
func described(raw json.RawMessage, versions []string, defaults map[string]any) json.RawMessage {
	var schema any
	if json.Unmarshal(raw, &schema) != nil {
		return raw
	}
	clean(schema)
	withVersions(schema, versions)
	withDefaults(schema, defaults)
	cleaned, err := json.Marshal(schema)
	if err != nil {
		return raw
	}
	return cleaned
}

// withDefaults gives the properties of schema their defaults.
func withDefaults(schema any, defaults map[string]any) {
	object, _ := schema.(map[string]any)
	properties, _ := object["properties"].(map[string]any)
	for name, value := range defaults {
		if property, ok := properties[name].(map[string]any); ok {
			property["default"] = value
		}
	}
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
