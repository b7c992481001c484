#!/usr/bin/env bash
# Prints the path of the pinned Nomad that the tests run, and builds it first if the cache has none, which takes minutes.
# tools/nomad.sh --built builds nothing: without a Nomad it says so and fails.
# The cache key is the version, the system, the Go version and the tool module's go.sum. Several may ask at once.
set -euo pipefail
module=$(cd "$(dirname "$0")/nomad" && pwd)
version=$(awk '$1 == "github.com/hashicorp/nomad" {print $2}' "$module/go.mod")
key=$( (go env GOVERSION; cat "$module/go.sum") | sha256sum | cut -c1-8)
dir="${XDG_CACHE_HOME:-$HOME/.cache}/python-executor/nomad-${version#v}-$(go env GOOS)-$(go env GOARCH)-$key"
if [ ! -x "$dir/nomad" ]; then
  if [ "${1:-}" = --built ]; then
    echo "no Nomad ${version#v} was built on this machine: run tools/nomad.sh, which takes some minutes" >&2
    exit 1
  fi
  mkdir -p "$dir"
  exec 9>"$dir/.lock"
  flock 9
  if [ ! -x "$dir/nomad" ]; then
    echo "building Nomad ${version#v} (once per machine; some minutes)" >&2
    (cd "$module" && GOWORK=off GOFLAGS=-mod=readonly go build -trimpath -ldflags '-s -w' -o "$dir/nomad.part" github.com/hashicorp/nomad) >&2
    mv "$dir/nomad.part" "$dir/nomad"
  fi
fi
echo "$dir/nomad"
