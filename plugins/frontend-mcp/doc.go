// Package mcpfrontend serves an executor.Service over the Model Context Protocol: as a plugin process (Factory), or over
// standard streams in the process of the caller (ServeStdio).
//
// Every tool calls the Service: it submits a Spec, uses a Session or runs a Script. MCP clients therefore get the engine,
// backends, limits and log that HTTP clients get. mcp-go implements the protocol. This package adds what the library lacks:
//
//   - progress notifications that always precede the result;
//   - results that are still sent after the end of standard input;
//   - notifications that go to the request that they belong to (stream.go);
//   - checks of Origin, Host, size and token (http.go);
//   - sessions that belong to an owner (mcpsessions.go).
//
// A tools/call arrives over stdio or HTTP. The transport puts the Principal, the MCP session and a notifier into ctx. A
// toolset (toolset_*.go) turns the arguments into a Spec, submits the Spec and follows its Events. It returns the Result in
// the form that the toolset's specification prescribes.
package mcpfrontend
