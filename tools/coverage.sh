#!/usr/bin/env bash
# Compares the "coverage: N% of statements" lines of `go test -cover` with the floors in tools/coverage.txt.
# A package that is not named there has the floor "default"; code that runs in another process is not counted.
set -euo pipefail
cd "$(dirname "$0")"
awk '
  FNR == NR { if ($0 !~ /^#/ && NF >= 2) floor[$1] = $2; next }
  /coverage: [0-9.]+% of statements/ {
    pkg = ""
    for (i = 1; i <= NF; i++) {
      if ($i ~ /^github.com\//) pkg = $i
      if ($i == "coverage:") cover = $(i + 1) + 0
    }
    sub(/^github.com\/python-executor\/python-executor\//, "", pkg)
    if (pkg == "") next
    want = (pkg in floor) ? floor[pkg] : floor["default"]
    seen++
    if (cover < want) { printf "coverage of %s: %.1f%% is below its floor of %d%%\n", pkg, cover, want; bad = 1 }
  }
  END {
    if (!seen) { print "no coverage lines were found"; exit 1 }
    if (!bad) printf "coverage: %d packages at or above their floors\n", seen
    exit bad
  }' coverage.txt "$@"
