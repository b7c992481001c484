#!/usr/bin/env bash
# The whole of `make test`: each part is timed, the table is printed at the end, the first failure ends the run.
# PYEXEC_TEST_REQUIRE=index,root,… turns a skip for a missing thing into a failure.
set -uo pipefail
cd "$(dirname "$0")/.."
cache="${XDG_CACHE_HOME:-$HOME/.cache}/python-executor"
mkdir -p "$cache"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
table="$work/table"
export GOFLAGS="${GOFLAGS:-} -trimpath"
# A raced process waits a second at its end for other reports; our tests start hundreds of them.
export GORACE="${GORACE:-atexit_sleep_ms=50}"

finish() {
  echo
  echo "part                      seconds"
  echo "------------------------- -------"
  cat "$table" 2>/dev/null
  exit "$1"
}
part() { # part NAME COMMAND…
  local name=$1 begin=$SECONDS status
  shift
  echo "=== $name"
  "$@"
  status=$?
  printf '%-25s %7d%s\n' "$name" $((SECONDS - begin)) "$([ $status = 0 ] || echo '  FAILED')" >>"$table"
  [ $status = 0 ] || finish 1
}
# gotest runs a module's tests under the race detector and keeps the coverage lines for the floors.
gotest() { # gotest MODULE
  local packages
  packages=$(cd "$1" && go list ./... | grep -vE '/(backendtest|core/runner)$')
  # shellcheck disable=SC2086 # a list of words
  (cd "$1" && go test -race -cover -timeout 20m $packages) 2>&1 | tee -a "$work/cover" | grep --line-buffered -vE 'no test files|coverage: 0.0% of statements$'
  return "${PIPESTATUS[0]}"
}
# The tests of core/runner start runners, so they count what is covered in all of the runner's packages.
gotest_core() {
  local others status
  gotest core &
  others=$!
  (cd core && go test -race -cover -coverpkg=./runner/... -timeout 20m ./runner) 2>&1 | tee -a "$work/cover"
  status=${PIPESTATUS[0]}
  wait "$others" || status=$?
  return "$status"
}
# The ninety saboteurs run on a fake clock, and the race detector makes them ten times slower: the law itself is raced by
# its honest users, the fake and the uv backend.
saboteurs() {
  (cd core && go test -cover -timeout 20m ./executor/backendtest) 2>&1 | tee -a "$work/cover"
  return "${PIPESTATUS[0]}"
}

part "build" make --no-print-directory build
part "lint" tools/lint.sh
part "generated code" tools/generate.sh --check
part "test core" gotest_core
# A client of Nomad needs root, so nobody else needs the binary.
[ "$(id -u)" != 0 ] || part "build nomad" tools/nomad.sh
for module in plugins/backend-uv plugins/backend-docker plugins/backend-nomad plugins/frontend-mcp frontends/http sdk/go cli; do
  part "test $module" gotest "$module"
done
part "sdk python" tools/sdk-python.sh test
part "saboteurs" saboteurs
part "end to end" gotest tests
part "coverage floors" tools/coverage.sh "$work/cover"
finish 0
