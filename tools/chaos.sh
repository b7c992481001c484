#!/usr/bin/env bash
# Kills the plugins of the two example backends with SIGKILL under load, for minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
CGO_ENABLED=0 go -C examples/backends/go build -trimpath -ldflags '-s -w' -o "$work/local-backend" .
python=$(tools/python-backend.sh)
go run ./tests/cmd/chaos -binary bin/python-executor "$@" "$work/local-backend" "$python"
