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
  (cd core/executor/wire/proto && "$buf" generate -o "$tmp")
  (cd core/executor/wire && find internal/pb -name '*.pb.go' -print0 | while IFS= read -r -d '' f; do
    diff -q "$f" "$(find "$tmp" -name "$(basename "$f")")" >/dev/null || { echo "stale: core/executor/wire/$f (make generate)"; exit 1; }
  done)
  go run ./frontends/http/cmd/openapi > "$tmp/openapi.json"
  diff -q frontends/http/openapi.json "$tmp/openapi.json" >/dev/null || { echo "stale: frontends/http/openapi.json (make generate)"; exit 1; }
  echo "generated: up to date"
else
  (cd core/executor/wire/proto && "$buf" generate)
  go run ./frontends/http/cmd/openapi > frontends/http/openapi.json.tmp
  mv frontends/http/openapi.json.tmp frontends/http/openapi.json
fi
