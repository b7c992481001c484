#!/usr/bin/env bash
# Runs every fuzz target of the tree for FUZZ_TIME (default 1m), FUZZ_JOBS targets at once (default 1), each with
# FUZZ_WORKERS workers (default: the processors divided among the jobs). FUZZ_ONLY is a pattern of names to run.
# What a target finds is kept in testdata/fuzz of its package, where `go test` tries it again.
#
# The workers of a target must make at least FUZZ_FLOOR (default 1000) executions per second together, on one quiet processor.
set -uo pipefail
cd "$(dirname "$0")/.."
time=${FUZZ_TIME:-1m} jobs=${FUZZ_JOBS:-1} floor=${FUZZ_FLOOR:-1000}
workers=${FUZZ_WORKERS:-$(($(nproc) / jobs))}
[ "$workers" -ge 1 ] || workers=1
export GOFLAGS="${GOFLAGS:-} -trimpath"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# FOLDER NAME of every target, found in the tree.
targets() {
  grep -rn --include='*_test.go' -oE '^func Fuzz[A-Za-z0-9_]+\(' core plugins frontends sdk cli tests |
    sed -E 's|^(.*)/[^/]*_test\.go:[0-9]+:func (Fuzz[A-Za-z0-9_]+)\($|\1 \2|' | sort -u
}

one() { # one FOLDER NAME: runs a target and writes its line of the table
  local folder=$1 name=$2 log="$work/$2.log" begin=$SECONDS status
  # -parallel bounds the workers; the minimising of what is interesting is no part of the search.
  (cd "$folder" && go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 1s -parallel "$workers" .) >"$log" 2>&1
  status=$?
  awk -v name="$name" -v folder="$folder" -v status="$status" -v floor="$floor" -v took=$((SECONDS - begin)) '
    /^fuzz: elapsed:/ {
      for (i = 1; i <= NF; i++) {
        if ($i == "elapsed:") at = seconds($(i + 1))
        if ($i == "execs:") execs = $(i + 1) + 0
      }
      # The first line with executions ends the warming up (the build, the corpus so far).
      if (execs > 0 && !begun) { begun = 1; from = at; had = execs }
      last = at; made = execs
    }
    function seconds(text,   total, n, parts) {
      sub(/,$/, "", text)
      total = 0
      if (match(text, /^[0-9]+h/)) { total += 3600 * substr(text, 1, RLENGTH - 1); text = substr(text, RLENGTH + 1) }
      if (match(text, /^[0-9]+m/)) { total += 60 * substr(text, 1, RLENGTH - 1); text = substr(text, RLENGTH + 1) }
      if (match(text, /^[0-9.]+s/)) total += substr(text, 1, RLENGTH - 1)
      return total
    }
    END {
      rate = last > from ? (made - had) / (last - from) : (last > 0 ? made / last : 0)
      verdict = "ok"
      if (rate < floor) verdict = "TOO SLOW (floor " floor ")"
      if (status != 0) verdict = "FAILED"
      printf "%-58s %-28s %12d %9.0f %8d  %s\n", name, folder, made, rate, took, verdict
    }' "$log" >"$work/$name.row"
  [ "$status" = 0 ] || { echo "=== $name"; cat "$log"; }
  cat "$work/$name.row"
}

printf '%-58s %-28s %12s %9s %8s  %s\n' target package executions per-s seconds verdict
export -f one
export work time workers floor
list=$(targets | grep -E "${FUZZ_ONLY:-.}")
[ -n "$list" ] || { echo "no fuzz target was found"; exit 1; }
echo "$list" | xargs -P "$jobs" -L 1 bash -c 'one "$0" "$1"'
cat "$work"/*.row >"$work/table"
total=$(echo "$list" | wc -l)
failed=$(grep -c 'FAILED$' "$work/table")
slow=$(grep -c 'TOO SLOW' "$work/table")
echo "fuzz: $total targets for $time each: $failed failed, $slow too slow"
[ "$failed" = 0 ] && [ "$slow" = 0 ] && [ "$(wc -l <"$work/table")" = "$total" ]
