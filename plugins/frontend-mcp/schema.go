package mcpfrontend

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// tool describes a tool. The booleans are the protocol's hints about what a call may do.
//
// A model pays for every word of the list of tools in each conversation. What holds for several tools is in the instructions of the server.
type tool struct {
	name, description             string
	like                          string // the tool whose arguments it has: they are described there
	tags                          []string
	readOnly, destructive, closed bool // closed: what it runs has no network
	idempotent                    bool // the same call again changes nothing more. A tool that is read-only has no such hint
	// note, unless nil, is told of each call whose arguments are refused.
	note func(context.Context, mcp.CallToolRequest)
}

// hints returns the protocol's hints as far as they differ from their defaults.
func (d tool) hints() mcp.ToolAnnotation {
	yes, no, hints := true, false, mcp.ToolAnnotation{}
	switch {
	case d.readOnly:
		hints.ReadOnlyHint = &yes
	case !d.destructive:
		hints.DestructiveHint = &no
	}
	if d.idempotent {
		hints.IdempotentHint = &yes
	}
	if d.closed {
		hints.OpenWorldHint = &no
	}
	return hints
}

// addTool adds a tool with arguments A and results R to those of offer. refused makes the result for arguments that cannot be read.
func addTool[A, R any](t *tools, d tool, refused func(error) *mcp.CallToolResult, call func(context.Context, mcp.CallToolRequest, A) (*mcp.CallToolResult, error)) {
	made := mcp.NewTool(d.name, mcp.WithDescription(d.description), inputSchema[A](d, t.backend().Capabilities.Pythons()), outputSchema[R]())
	made.Annotations = d.hints()
	if d.tags != nil {
		made.Meta = mcp.NewMetaFromMap(map[string]any{metaTags: d.tags})
	}
	t.offered.tools = append(t.offered.tools, server.ServerTool{Tool: made, Handler: func(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var a A
		if err := bind(request, &a); err != nil {
			if d.note != nil {
				d.note(ctx, request)
			}
			return refused(err), nil
		}
		return call(ctx, request, a)
	}})
}

// inputSchema sets the schema of a struct of arguments. For a pointer or a list the library also allows null, which some
// clients cannot read. inputSchema removes null. versions are the values of an argument python_version.
func inputSchema[T any](d tool, versions []string) mcp.ToolOption {
	return func(tool *mcp.Tool) {
		mcp.WithInputSchema[T]()(tool)
		tool.RawInputSchema = described(tool.RawInputSchema, versions, defaults[d.name], d.like != "")
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

// outputSchema sets the schema of a struct of results: the names and the types of its fields. No result of a tool has null in it.
func outputSchema[T any]() mcp.ToolOption {
	return func(tool *mcp.Tool) {
		mcp.WithOutputSchema[T]()(tool)
		properties := tool.OutputSchema.Properties
		clean(properties)
		schema := map[string]any{"type": "object", "properties": properties}
		bare(schema)
		raw, err := json.Marshal(schema)
		if err == nil {
			tool.OutputSchema, tool.RawOutputSchema = mcp.ToolOutputSchema{}, raw
		}
	}
}

// bare removes from a schema, and from all in it, the prose and what a model does not need to read a result.
func bare(schema any) {
	object, _ := schema.(map[string]any)
	for _, word := range []string{"description", "required", "additionalProperties"} {
		delete(object, word)
	}
	if items, ok := object["items"]; ok {
		bare(items)
	}
	properties, _ := object["properties"].(map[string]any)
	for _, property := range properties {
		bare(property)
	}
}

// described returns the JSON schema raw without the type null, and with the values of python_version and the defaults. elsewhere says that
// the arguments are described at another tool.
func described(raw json.RawMessage, versions []string, defaults map[string]any, elsewhere bool) json.RawMessage {
	var schema any
	if json.Unmarshal(raw, &schema) != nil {
		return raw
	}
	clean(schema)
	if object, ok := schema.(map[string]any); ok {
		delete(object, "additionalProperties") // bind refuses them, and names the argument that was meant
		if properties, _ := object["properties"].(map[string]any); elsewhere {
			for _, property := range properties {
				bare(property)
			}
		}
	}
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
