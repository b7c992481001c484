// Package proto holds the source of the gRPC services, for plugins in other languages (docs/plugins.md).
package proto

import "embed"

// Files has the files by the names under which they import each other: pyexec/v1/types.proto.
//
//go:embed pyexec/v1/*.proto
var Files embed.FS
