#!/usr/bin/env bash
# The fidelity corpus, the abuse suite and the attacks on fork server and network, as root and as an ordinary user, ABUSE_ROUNDS times (2).
# It fails if a test fails, or if anything is left afterwards: a process, a control group, a mount, a file, an IPC object, or memory.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${ABUSE_ROUNDS:-2}
[ "$(id -u)" = 0 ] || { echo "abuse.sh: must be run by root, because it runs tests as root and as nobody" >&2; exit 1; }
# All runs in namespaces and control groups of its own, so that nothing else on the machine counts.
if [ "${1:-}" != inside ]; then
  exec unshare --pid --fork --mount-proc --kill-child --ipc --mount bash -c 'tools/abuse.sh inside; exit $?' # bash reaps orphans
fi

groups=()
enter_groups() {
  local number controllers path mount dir
  while IFS=: read -r number controllers path; do
    case ,$controllers, in ,, | *,memory,* | *,pids,* | *,cpu,* | *,cpuacct,*) ;; *) continue ;; esac
    if [ "$number" = 0 ]; then
      mount=$(awk '/ - cgroup2 / {print $5; exit}' /proc/self/mountinfo)
    else
      mount=$(awk -v c="$controllers" '/ - cgroup / && $NF ~ "(^|,)" c "(,|$)" {print $5; exit}' /proc/self/mountinfo)
    fi
    [ -n "$mount" ] || continue
    dir=${mount%/}${path%/}/pyexec-abuse-$(stat -Lc %i /proc/self/ns/pid)
    mkdir -p "$dir/shell" 2>/dev/null || continue
    groups+=("$dir")
    echo $$ >"$dir/shell/cgroup.procs" # version 2 gives controllers only to children of a group without processes
  done <<<"$(</proc/self/cgroup)" # whole, before this process moves
}
leave_groups() {
  for dir in "${groups[@]}"; do
    echo $$ >"$(dirname "$dir")/cgroup.procs"
    rmdir "$dir/shell" "$dir" || true
  done
}
# state lists what a run could leave behind.
state() {
  for p in /proc/[0-9]*; do
    [ "$p" = /proc/1 ] || [ "$p" = /proc/$$ ] || echo "process $(tr '\0' ' ' <"$p/cmdline" || true)"
  done
  find "${groups[@]}" -mindepth 1 -type d | sort
  awk '{print "mount", $5}' /proc/self/mountinfo | sort
  # An empty lock of a uid is kept for the next program with that uid.
  find "${folders[@]}" /run/lock /run/python-executor -mindepth 1 -maxdepth 3 ! \( -path '*/uids/*.lock' -empty \) 2>/dev/null | { grep -v "^$work" || true; } | sort
  tail -qn +2 /proc/sysvipc/{shm,msg,sem} | awk '{print "ipc", $1, $2}'
  awk -F: 'NR > 2 {print "interface", $1}' /proc/net/dev
}
# shared prints the KiB of shared memory, such as files in a tmpfs, that are charged to the groups.
shared() {
  { cat "${groups[@]/%//memory.stat}" 2>/dev/null || true; } | awk '$1 == "total_shmem" || $1 == "shmem" {v[$1] = $2} END {
    n = "total_shmem" in v ? v["total_shmem"] : v["shmem"]; print int(n / 1024)}'
}
# suite runs tests of a built binary and adds a line to the table.
suite() { # suite ROUND USER NAME COMMAND…
  local round=$1 user=$2 name=$3 begin=$SECONDS status=0 log
  shift 3
  log="$work/$round-$user-$name.log"
  (cd "$here" && "$@" -test.v -test.timeout 30m) >"$log" 2>&1 || status=$?
  printf '%-6s %-8s %-12s %7d %7d %7d %8d\n' "$round" "$user" "$name" "$(grep -c -- '--- PASS' "$log")" "$(grep -c -- '--- SKIP' "$log")" \
    "$(grep -c -- '--- FAIL' "$log")" $((SECONDS - begin)) | tee -a "$work/table"
  [ $status = 0 ] || { failed=1; grep -B 20 -A 20 -- '--- FAIL' "$log" >"$work/excerpt" || tail -n 100 "$log" >"$work/excerpt"; head -n 200 "$work/excerpt"; }
}
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$home" TMPDIR="$home" PYEXEC_TEST_REQUIRE=box PYEXEC_TEST_LONG=1 "$@"; }

# The names of tests are whole.
whole() { printf '^(%s)$' "$(IFS='|' && echo "$*")"; }
forks=$(whole TestForksInABoxRunAsUnderPlainPython TestTheNextProgramsAreForked TestAForkHasTheLimitsOfItsExecution TestNothingOfAForkIsLeftForTheNext \
  TestAProgramDoesNotDisturbItsForkServer TestNothingOfAForkServerMeetsTheNextOwner TestAForkServerIsNotBelieved)

folders=(/var/tmp /var/cache /dev/shm)
case $PWD/ in /tmp/*) ;; *) folders+=(/tmp) ;; esac
for folder in "${folders[@]}"; do mount -t tmpfs -o mode=1777 private "$folder"; done
export TMPDIR=/var/tmp
work=$(mktemp -d) home=/var/tmp/home here=$PWD failed=0
chmod 755 "$work"
install -d -o 65534 -g 65534 "$home"
(cd core/runner && go test -c -o "$work/runner.test" .)
(cd tests && go test -c -o "$work/tests.test" .)
mkdir -p "$work/tree/bin" && cp -r tests "$work/tree/" && cp bin/python-executor "$work/tree/bin/"
(cd plugins/backend-uv && go test -tags embedrunner -c -o "$work/uv.test" .)
trap leave_groups EXIT
enter_groups
state >"$work/before"
memory=$(shared)
echo "round  user     suite         passed skipped  failed  seconds"
for round in $(seq "$rounds"); do
  export PYEXEC_TEST_REQUIRE=root,cgroup,box
  here=$PWD/core/runner
  suite "$round" root fidelity "$work/runner.test" -test.run "$(whole TestProgramsRunAsUnderPlainPython)"
  suite "$round" root forks "$work/runner.test" -test.run "$forks"
  suite "$round" nobody forks as_nobody "$work/runner.test" -test.run "$forks"
  here=$PWD/plugins/backend-uv
  suite "$round" both law "$work/uv.test" -test.run "$(whole TestConformance)"
  suite "$round" both network "$work/uv.test" -test.run "$(whole TestAProgramReachesTheOutsideAndNotTheHost)"
  here=$work/tree/tests # nobody may not get to the repository
  api=$(whole TestAProgramWithANetworkOfItsOwnDoesNotReachItsServer)
  suite "$round" root api "$work/tests.test" -test.run "$api"
  suite "$round" nobody api as_nobody "$work/tests.test" -test.run "$api"
  for _ in $(seq 50); do # the kernel removes what is gone a little later
    state >"$work/after" # not in a pipe, which would be processes, too
    diff "$work/before" "$work/after" >"$work/left" && [ $(($(shared) - memory)) -lt 1024 ] && break
    sleep 0.2
  done
  echo "round $round: $(grep -c '^>' "$work/left" || true) leftovers, $(($(shared) - memory)) KiB of memory more"
  grep '^>' "$work/left" && failed=1
  [ $(($(shared) - memory)) -lt 1024 ] || failed=1
done
exit $failed
