#!/usr/bin/env bash
# 10,000 async executions with three kill -9 of the core in between, 1,000 sessions, and 200 rounds of kill -9 around programs in containers.
set -euo pipefail
cd "$(dirname "$0")/.."
go run ./tests/cmd/soak -binary bin/python-executor "$@"
