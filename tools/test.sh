#!/usr/bin/env bash
# The whole of `make test`: each part is timed, the table is printed at the end, and after the first failure no part begins.
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

# finish ends a lane. After a failure, or when the script was interrupted, no lane begins another part.
finish() {
  [ "$1" = 0 ] || touch "$work/failed"
  exit "$1"
}
part() { # part NAME COMMAND…
  local name=$1 begin=$SECONDS status
  shift
  [ -d "$work" ] && [ ! -e "$work/failed" ] || exit 1
  if [ "$lane" = beside ]; then
    # What a part prints stays together, below the line that the part has ended with.
    "$@" >"$work/output" 2>&1
    status=$?
    { printf -- '--- %s: %d s\n' "$name" $((SECONDS - begin)); cat "$work/output"; } >"$work/whole"
    cat "$work/whole"
  else
    echo "=== $name"
    "$@"
    status=$?
  fi
  printf '%-27s %7d %-7s%s\n' "$name" $((SECONDS - begin)) "$lane" "$([ $status = 0 ] || echo '  FAILED')" >>"$table"
  [ $status = 0 ] || finish 1
}
# gotest runs a module's tests under the race detector and keeps the coverage lines for the floors.
gotest() { # gotest MODULE [FLAG…]
  local packages
  packages=$(cd "$1" && go list ./... | grep -vE '/(backendtest|core/runner)$')
  # shellcheck disable=SC2086 # a list of words
  (cd "$1" && go test -race -cover -timeout 30m "${@:2}" $packages) 2>&1 | tee -a "$work/cover.$lane" | grep --line-buffered -vE 'no test files|coverage: 0.0% of statements$'
  return "${PIPESTATUS[0]}"
}
# The tests of core/runner start runners, so they count what is covered in all of the runner's packages.
gotest_runner() {
  (cd core && go test -race -cover -coverpkg=./runner/... -timeout 30m ./runner) 2>&1 | tee -a "$work/cover.$lane"
  return "${PIPESTATUS[0]}"
}
# The ninety saboteurs run on a fake clock, and the race detector makes them ten times slower: the law itself is raced by
# its honest users, the fake and the uv backend.
saboteurs() {
  (cd core && go test -cover -timeout 30m ./executor/backendtest) 2>&1 | tee -a "$work/cover.$lane"
  return "${PIPESTATUS[0]}"
}

# Two lanes. The suites of the first kill what is left under their uids, or look at the whole machine, so they run one after another.
# They mostly wait for processes. Meanwhile the second lane uses the processors. Nomad's suite is in it, because it has uids, folders and
# agents of its own, and waits most of its time.
lane_machine() {
  part "test core/runner" gotest_runner
  # The embedded runner starts much faster than a raced test binary. The runner itself is raced by the tests of core/runner.
  part "test plugins/backend-uv" gotest plugins/backend-uv -tags embedrunner
  part "test plugins/backend-docker" gotest plugins/backend-docker
  agents
  part "end to end" gotest tests
}
# agents builds the agents that tests start, unless they are there. Both lanes need them, and the second one first.
agents() {
  # A client of Nomad needs root, so nobody else needs the binary.
  [ "$(id -u)" != 0 ] || part "build nomad" tools/nomad.sh
  part "build consul" tools/consul.sh
}
lane_beside() {
  local module
  part "lint" tools/lint.sh
  part "generated code" tools/generate.sh --check
  agents
  part "test plugins/backend-nomad" gotest plugins/backend-nomad
  part "test core" gotest core
  for module in plugins/frontend-mcp frontends/http sdk/go cli; do
    part "test $module" gotest "$module"
  done
  part "sdk python" tools/sdk-python.sh test
  part "saboteurs" saboteurs
}

status=0 lane=
(part "build" make --no-print-directory build) || status=$?
if [ $status = 0 ]; then
  (lane=beside && lane_beside) &
  beside=$!
  (lane=machine && lane_machine) || status=$?
  wait "$beside" || status=$?
fi
[ $status != 0 ] || (part "coverage floors" tools/coverage.sh "$work"/cover.*) >"$work/floors" || status=$?
echo
echo "part                        seconds lane"
echo "--------------------------- ------- -------"
cat "$table"
printf '%-27s %7d\n' "all" "$SECONDS"
# The end of a long log is what people see first, so it names what has failed.
cat "$work/floors" 2>/dev/null
grep -hE '^ *--- FAIL: |^FAIL[[:space:]]|^panic: ' "$work"/cover.* 2>/dev/null | head -40
exit $status
