package mcpfrontend

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// The fixtures are the tools, resources and prompts that the conformance suite of the protocol expects of a server. They use
// the real transport. Only Config.TestFixtures adds them.

// fixtureImage is a PNG of one pixel, fixtureAudio a WAV without samples.
var (
	fixtureImage = base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\xdac\xfc\xcf\xc0\xf0\x1f\x00\x05\x05\x02\x00_\xc8\xf1\xd2\x00\x00\x00\x00IEND\xaeB`\x82"))
	fixtureAudio = base64.StdEncoding.EncodeToString([]byte("RIFF$\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00@\x1f\x00\x00\x80>\x00\x00\x02\x00\x10\x00data\x00\x00\x00\x00"))
)

// fixtureOptions are the capabilities of the protocol that only the fixtures use.
func fixtureOptions() []server.ServerOption {
	return []server.ServerOption{
		server.WithPromptCapabilities(false), server.WithLogging(), server.WithElicitation(), server.WithCompletions(),
		server.WithResourceCapabilities(true, false),
		server.WithPromptCompletionProvider(fixtureCompletion{}), server.WithResourceCompletionProvider(fixtureCompletion{}),
	}
}

// fixtureCompletion completes nothing.
type fixtureCompletion struct{}

func (fixtureCompletion) CompletePromptArgument(context.Context, string, mcp.CompleteArgument, mcp.CompleteContext) (*mcp.Completion, error) {
	return &mcp.Completion{Values: []string{}}, nil
}

func (fixtureCompletion) CompleteResourceArgument(context.Context, string, mcp.CompleteArgument, mcp.CompleteContext) (*mcp.Completion, error) {
	return &mcp.Completion{Values: []string{}}, nil
}

func (t *tools) addFixtures() {
	t.server.EnableSampling()
	t.fixtureTools()
	t.fixtureDialogues()
	t.fixtureResources()
	t.fixturePrompts()
}

func (t *tools) fixtureTools() {
	content := func(name string, parts ...mcp.Content) {
		t.server.AddTool(mcp.NewTool(name, mcp.WithDescription("fixture of the conformance suite")),
			func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: parts}, nil
			})
	}
	embedded := func(uri, mime, text string) mcp.Content {
		return mcp.NewEmbeddedResource(mcp.TextResourceContents{URI: uri, MIMEType: mime, Text: text})
	}
	content("test_simple_text", mcp.NewTextContent("This is a simple text response for testing."))
	content("test_image_content", mcp.NewImageContent(fixtureImage, "image/png"))
	content("test_audio_content", mcp.NewAudioContent(fixtureAudio, "audio/wav"))
	content("test_embedded_resource", embedded("test://embedded-resource", "text/plain", "This is an embedded resource content."))
	content("test_multiple_content_types", mcp.NewTextContent("Multiple content types test:"),
		mcp.NewImageContent(fixtureImage, "image/png"),
		embedded("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`))
	t.server.AddTool(mcp.NewTool("test_error_handling", mcp.WithDescription("fixture: always an error")),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultError("This tool intentionally returns an error for testing"), nil
		})
	t.server.AddTool(mcp.NewTool("test_tool_with_logging", mcp.WithDescription("fixture: three log messages")),
		func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			for _, text := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
				notify(ctx, "notifications/message", map[string]any{"level": "info", "logger": "fixture", "data": text})
			}
			return mcp.NewToolResultText("Tool with logging executed successfully"), nil
		})
	t.server.AddTool(mcp.NewTool("test_tool_with_progress", mcp.WithDescription("fixture: three steps of progress")),
		func(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if request.Params.Meta != nil && request.Params.Meta.ProgressToken != nil {
				for _, done := range []int{0, 50, 100} {
					notify(ctx, "notifications/progress", map[string]any{
						"progressToken": request.Params.Meta.ProgressToken, "progress": done, "total": 100,
					})
				}
			}
			return mcp.NewToolResultText("progress reported"), nil
		})
	t.server.AddTool(mcp.NewToolWithRawSchema("json_schema_2020_12_tool", "fixture: a schema of draft 2020-12", json.RawMessage(
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",`+
			`"$defs":{"address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},`+
			`"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"}},"additionalProperties":false}`)),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("ok"), nil
		})
}

// fixtureDialogues adds the tools that send requests to the client.
func (t *tools) fixtureDialogues() {
	t.server.AddTool(mcp.NewTool("test_sampling", mcp.WithDescription("fixture: asks the client's model"),
		mcp.WithString("prompt", mcp.Required())),
		func(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			answer, err := t.server.RequestSampling(ctx, mcp.CreateMessageRequest{ //nolint:staticcheck // the suite asks for it
				Request: mcp.Request{Method: string(mcp.MethodSamplingCreateMessage)},
				CreateMessageParams: mcp.CreateMessageParams{
					Messages:  []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.NewTextContent(request.GetString("prompt", ""))}},
					MaxTokens: 100,
				},
			})
			if err != nil {
				return mcp.NewToolResultError(err.Error()), nil
			}
			text := "nothing"
			if c, ok := answer.Content.(mcp.TextContent); ok {
				text = c.Text
			}
			return mcp.NewToolResultText("LLM response: " + text), nil
		})
	ask := func(name string, message func(mcp.CallToolRequest) string, schema string, options ...mcp.ToolOption) {
		t.server.AddTool(mcp.NewTool(name, append([]mcp.ToolOption{mcp.WithDescription("fixture: asks the user")}, options...)...),
			func(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				answer, err := t.server.RequestElicitation(ctx, mcp.ElicitationRequest{
					Request: mcp.Request{Method: string(mcp.MethodElicitationCreate)},
					Params:  mcp.ElicitationParams{Message: message(request), RequestedSchema: json.RawMessage(schema)},
				})
				if err != nil {
					return mcp.NewToolResultError(err.Error()), nil
				}
				return mcp.NewToolResultText(fmt.Sprintf("User response: action=%s, content=%v", answer.Action, answer.Content)), nil
			})
	}
	fixed := func(text string) func(mcp.CallToolRequest) string {
		return func(mcp.CallToolRequest) string { return text }
	}
	ask("test_elicitation", func(r mcp.CallToolRequest) string { return r.GetString("message", "") },
		`{"type":"object","properties":{"username":{"type":"string"},"email":{"type":"string"}},"required":["username","email"]}`,
		mcp.WithString("message", mcp.Required()))
	ask("test_elicitation_sep1034_defaults", fixed("Please fill in"),
		`{"type":"object","properties":{"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},`+
			`"score":{"type":"number","default":95.5},"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},`+
			`"verified":{"type":"boolean","default":true}}}`)
	ask("test_elicitation_sep1330_enums", fixed("Please choose"),
		`{"type":"object","properties":{"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},`+
			`"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"}]},`+
			`"legacyEnum":{"type":"string","enum":["opt1","opt2"],"enumNames":["Option One","Option Two"]},`+
			`"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2","option3"]}},`+
			`"titledMulti":{"type":"array","items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"}]}}}}`)
}

func (t *tools) fixtureResources() {
	t.server.AddResource(mcp.NewResource("test://static-text", "static text", mcp.WithMIMEType("text/plain")),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.TextResourceContents{
				URI: "test://static-text", MIMEType: "text/plain", Text: "This is the content of the static text resource.",
			}}, nil
		})
	t.server.AddResource(mcp.NewResource("test://watched-resource", "watched", mcp.WithMIMEType("text/plain")),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: "test://watched-resource", MIMEType: "text/plain", Text: "watched"}}, nil
		})
	t.server.AddResource(mcp.NewResource("test://static-binary", "static binary", mcp.WithMIMEType("image/png")),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.BlobResourceContents{URI: "test://static-binary", MIMEType: "image/png", Blob: fixtureImage}}, nil
		})
	t.server.AddResourceTemplate(mcp.NewResourceTemplate("test://template/{id}/data", "template", mcp.WithTemplateMIMEType("application/json")),
		func(_ context.Context, request mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			id := strings.TrimSuffix(strings.TrimPrefix(request.Params.URI, "test://template/"), "/data")
			return []mcp.ResourceContents{mcp.TextResourceContents{
				URI: request.Params.URI, MIMEType: "application/json",
				Text: text(map[string]any{"id": id, "templateTest": true, "data": "Data for ID: " + id}),
			}}, nil
		})
}

func (t *tools) fixturePrompts() {
	prompt := func(name string, messages func(map[string]string) []mcp.PromptMessage, arguments ...string) {
		options := []mcp.PromptOption{mcp.WithPromptDescription("fixture of the conformance suite")}
		for _, a := range arguments {
			options = append(options, mcp.WithArgument(a, mcp.RequiredArgument()))
		}
		t.server.AddPrompt(mcp.NewPrompt(name, options...), func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{Messages: messages(r.Params.Arguments)}, nil
		})
	}
	say := func(c mcp.Content) mcp.PromptMessage { return mcp.PromptMessage{Role: mcp.RoleUser, Content: c} }
	prompt("test_simple_prompt", func(map[string]string) []mcp.PromptMessage {
		return []mcp.PromptMessage{say(mcp.NewTextContent("This is a simple prompt for testing."))}
	})
	prompt("test_prompt_with_arguments", func(a map[string]string) []mcp.PromptMessage {
		return []mcp.PromptMessage{say(mcp.NewTextContent(fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", a["arg1"], a["arg2"])))}
	}, "arg1", "arg2")
	prompt("test_prompt_with_embedded_resource", func(a map[string]string) []mcp.PromptMessage {
		return []mcp.PromptMessage{
			say(mcp.NewEmbeddedResource(mcp.TextResourceContents{URI: a["resourceUri"], MIMEType: "text/plain", Text: "Embedded resource content for testing."})),
			say(mcp.NewTextContent("Please process the embedded resource above.")),
		}
	}, "resourceUri")
	prompt("test_prompt_with_image", func(map[string]string) []mcp.PromptMessage {
		return []mcp.PromptMessage{say(mcp.NewImageContent(fixtureImage, "image/png")), say(mcp.NewTextContent("Please analyze the image above."))}
	})
}
