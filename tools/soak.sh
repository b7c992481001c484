#!/usr/bin/env bash
# 10,000 async executions with three kill -9 of the core in between.
set -euo pipefail
cd "$(dirname "$0")/.."
go run ./tests/cmd/soak -binary bin/python-executor "$@"
