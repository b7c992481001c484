#!/usr/bin/env bash
# Kills the plugins of the two example backends, and the parts of the Nomad backend, with SIGKILL under load, for minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
CGO_ENABLED=0 go -C examples/backends/go build -trimpath -ldflags '-s -w' -o "$work/local-backend" .
python=$(tools/python-backend.sh)
# A client of Nomad needs root.
[ "$(id -u)" != 0 ] || tools/nomad.sh >/dev/null
go run ./tests/cmd/chaos -binary bin/python-executor "$@" "$work/local-backend" "$python"
