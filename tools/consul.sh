#!/usr/bin/env bash
# Prints the path of the pinned Consul that the tests run, and builds it first if the cache has none, which takes minutes.
# tools/consul.sh --built builds nothing: without a Consul it says so and fails.
# The cache key is the version, the system, the Go version and the tool module's go.sum. Several may ask at once.
set -euo pipefail
module=$(cd "$(dirname "$0")/consul" && pwd)
version=$(awk '$1 == "github.com/hashicorp/consul" {print $2}' "$module/go.mod")
key=$( (go env GOVERSION; cat "$module/go.sum") | sha256sum | cut -c1-8)
dir="${XDG_CACHE_HOME:-$HOME/.cache}/python-executor/consul-${version#v}-$(go env GOOS)-$(go env GOARCH)-$key"
if [ ! -x "$dir/consul" ]; then
  if [ "${1:-}" = --built ]; then
    echo "no Consul ${version#v} was built on this machine: run tools/consul.sh, which takes some minutes" >&2
    exit 1
  fi
  mkdir -p "$dir"
  exec 9>"$dir/.lock"
  flock 9
  if [ ! -x "$dir/consul" ]; then
    echo "building Consul ${version#v} (once per machine; some minutes)" >&2
    (cd "$module" && GOWORK=off GOFLAGS=-mod=readonly go build -trimpath -ldflags '-s -w' -o "$dir/consul.part" github.com/hashicorp/consul) >&2
    mv "$dir/consul.part" "$dir/consul"
  fi
fi
echo "$dir/consul"
