package mcpfrontend

import (
	"encoding/json"

	"github.com/mark3labs/mcp-go/mcp"
)

// titled gives a tool its title, in both places where clients look for it.
func titled(title string) mcp.ToolOption {
	return func(tool *mcp.Tool) {
		mcp.WithToolTitle(title)(tool)
		mcp.WithTitleAnnotation(title)(tool)
	}
}

// inputSchema is the schema of a struct of arguments. Arguments that may be left out are of one type: what the library
// makes of a pointer or a list allows null, too, which some clients cannot read.
func inputSchema[T any]() mcp.ToolOption {
	return func(tool *mcp.Tool) {
		mcp.WithInputSchema[T]()(tool)
		tool.RawInputSchema = withoutNull(tool.RawInputSchema)
	}
}

// outputSchema is the schema of a struct of results. None of our results has null in it.
func outputSchema[T any]() mcp.ToolOption {
	return func(tool *mcp.Tool) {
		mcp.WithOutputSchema[T]()(tool)
		for _, property := range tool.OutputSchema.Properties {
			clean(property)
		}
	}
}

func withoutNull(raw json.RawMessage) json.RawMessage {
	var schema any
	if json.Unmarshal(raw, &schema) != nil {
		return raw
	}
	clean(schema)
	cleaned, err := json.Marshal(schema)
	if err != nil {
		return raw
	}
	return cleaned
}

func clean(schema any) {
	switch v := schema.(type) {
	case map[string]any:
		if types, ok := v["type"].([]any); ok {
			var left []any
			for _, t := range types {
				if t != "null" {
					left = append(left, t)
				}
			}
			if len(left) == 1 {
				v["type"] = left[0]
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
