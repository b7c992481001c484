#!/usr/bin/env bash
# Prints the path of a pinned tool and builds it first if the cache has none: tools/tool.sh buf
# The cache key is the tool module's go.sum and the Go version, so a changed pin builds a new copy beside the old one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache="${XDG_CACHE_HOME:-$HOME/.cache}/python-executor/tools"
case "$1" in
  golangci-lint) module="$here/golangci" package=github.com/golangci/golangci-lint/v2/cmd/golangci-lint ;;
  gremlins) module="$here/gremlins" package=github.com/go-gremlins/gremlins/cmd/gremlins ;;
  buf) module="$here" package=github.com/bufbuild/buf/cmd/buf ;;
  protoc-gen-go) module="$here" package=google.golang.org/protobuf/cmd/protoc-gen-go ;;
  protoc-gen-go-grpc) module="$here" package=google.golang.org/grpc/cmd/protoc-gen-go-grpc ;;
  *) echo "unknown tool: $1" >&2; exit 2 ;;
esac
key=$( (go env GOVERSION; cat "$module/go.sum") | sha256sum | cut -c1-16)
bin="$cache/$key/$1"
if [ ! -x "$bin" ]; then
  echo "building $1 (once)" >&2
  mkdir -p "$cache/$key"
  (cd "$module" && GOWORK=off GOFLAGS=-mod=readonly CGO_ENABLED=0 go build -trimpath -o "$bin.$$" "$package")
  mv "$bin.$$" "$bin"
fi
echo "$bin"
