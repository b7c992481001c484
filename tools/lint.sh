#!/usr/bin/env bash
# Everything that can be said about the code without running it.
#   tools/lint.sh                     all modules, formatting, and the protocol
#   tools/lint.sh MODULE PACKAGE…     formatting, and these packages: tools/lint.sh core ./engine
#   tools/lint.sh --platforms         each module builds alone, and the product builds for other platforms
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0 # as the product and the tests, so that nothing is compiled twice
modules=(core plugins/backend-uv plugins/backend-docker plugins/backend-nomad plugins/frontend-mcp frontends/http sdk/go cli tests)
if [ "${1:-}" = --platforms ]; then
  for module in "${modules[@]}"; do
    # As its users will build it.
    (cd "$module" && GOWORK=off GOFLAGS=-mod=readonly go build ./...)
  done
  for target in darwin/arm64 windows/amd64 linux/arm64; do
    CGO_ENABLED=0 GOOS=${target%/*} GOARCH=${target#*/} go build -trimpath -o /dev/null ./cli
  done
  exit
fi
export GOGC=400 # less collection, more memory
unformatted=$(gofmt -l core plugins frontends sdk cli tests examples tools)
if [ -n "$unformatted" ]; then echo "not gofmt'ed:"; echo "$unformatted"; exit 1; fi
lint=$(tools/tool.sh golangci-lint)
packages() { # packages MODULE PACKAGE…
  (cd "$1" && "$lint" run --allow-parallel-runners --config "$OLDPWD/.golangci.yml" "${@:2}")
}
if [ $# -gt 0 ]; then
  packages "$@"
  exit
fi
# One run for all modules: each run loads all that its packages import, and its paths are those of .golangci.yml in both ways.
everything=("${modules[@]/#/./}")
packages . "${everything[@]/%//...}"
# The example backend is a module in a workspace of its own, as a backend of somebody else is. So is the program that runs the parts of
# the suite: it starts without the modules of the others.
(packages examples/backends/go ./... && cd examples/backends/go && GOFLAGS=-mod=readonly go build -o /dev/null .)
GOWORK=off packages tools/gate ./...
buf=$(tools/tool.sh buf)
(cd core/executor/wire/proto && "$buf" lint && "$buf" breaking --against released.binpb)
echo "lint: ok"
