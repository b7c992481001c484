#!/usr/bin/env bash
# Everything that can be said about the code without running it.
set -euo pipefail
cd "$(dirname "$0")/.."
unformatted=$(gofmt -l core plugins frontends sdk cli tests examples tools)
if [ -n "$unformatted" ]; then echo "not gofmt'ed:"; echo "$unformatted"; exit 1; fi
lint=$(tools/tool.sh golangci-lint)
for module in core plugins/backend-uv plugins/backend-docker plugins/backend-nomad plugins/frontend-mcp frontends/http sdk/go cli tests; do
  (cd "$module" && "$lint" run --allow-parallel-runners --config "$OLDPWD/.golangci.yml" ./...)
  # Each module builds alone, as its users will build it.
  (cd "$module" && GOWORK=off GOFLAGS=-mod=readonly go build ./...)
done
# The example backend is a module in a workspace of its own, as a backend of somebody else is.
(cd examples/backends/go && "$lint" run --allow-parallel-runners --config "$OLDPWD/.golangci.yml" ./... && GOFLAGS=-mod=readonly go build -o /dev/null .)
# So is the program that runs the parts of the suite: it starts without the modules of the others.
(cd tools/gate && GOWORK=off "$lint" run --allow-parallel-runners --config "$OLDPWD/.golangci.yml" ./...)
for target in darwin/arm64 windows/amd64 linux/arm64; do
  CGO_ENABLED=0 GOOS=${target%/*} GOARCH=${target#*/} go build -trimpath -o /dev/null ./cli
done
buf=$(tools/tool.sh buf)
(cd core/executor/wire/proto && "$buf" lint && "$buf" breaking --against released.binpb)
echo "lint: ok"
