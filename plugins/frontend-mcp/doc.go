// Package mcpfrontend serves an executor.Service over the Model Context Protocol.
package mcpfrontend
