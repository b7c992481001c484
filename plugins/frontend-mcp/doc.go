// Package mcpfrontend serves an executor.Service over the Model Context Protocol, as a plugin process (Factory).
//
// It holds nothing but a Service: what a tool does is a Submit, a Session or a Script of it, so that every MCP client gets
// the engine, backends, limits and log that HTTP has. mcp-go speaks the protocol; around it this package puts what the
// library leaves out: an order between progress and result, results that survive the end of standard input, the routing of
// a notification to the request it belongs to (stream.go), Origin, Host, size and token checks (http.go), and sessions
// that belong to an owner (mcpsessions.go).
//
// One flow: a client's tools/call comes over stdio or HTTP; the transport puts the Principal, the MCP session and a way to
// notify into ctx; a toolset (toolset_*.go) turns arguments into a Spec, submits it, follows its Events, and shapes the
// Result as its specification says.
package mcpfrontend
