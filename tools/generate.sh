#!/usr/bin/env bash
# Writes the generated files; with --check generates into a temporary copy and compares.
set -euo pipefail
cd "$(dirname "$0")/.."
buf=$(tools/tool.sh buf)
PATH="$(dirname "$(tools/tool.sh protoc-gen-go)"):$(dirname "$(tools/tool.sh protoc-gen-go-grpc)"):$PATH"
export PATH
if [ "${1:-}" = --check ]; then
  tmp=$(mktemp -d)
  trap 'rm -rf "$tmp"' EXIT
  (cd core/executor/wire/proto && "$buf" generate -o "$tmp/x")
  (cd core/executor/wire && find internal/pb -name '*.pb.go' -print0 | while IFS= read -r -d '' f; do
    diff -q "$f" "$(find "$tmp" -name "$(basename "$f")")" >/dev/null || { echo "stale: core/executor/wire/$f (make generate)"; exit 1; }
  done)
  # openapi.json is compared by the HTTP frontend's own tests.
  echo "generated: up to date"
else
  (cd core/executor/wire/proto && "$buf" generate)
  (cd frontends/http && go test -run 'Descri' -count=1 . -update)
fi
