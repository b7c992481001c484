#!/usr/bin/env bash
# apart.sh COMMAND…: runs a command with processes, IPC and folders for temporary files of its own, so that suites that start programs under
# the same uids, and end or remove all that these leave, do not meet. It needs root's rights on namespaces and mounts: gate asks first (canBeApart).
set -euo pipefail
if [ "${1:-}" != --inside ]; then
  export GOCACHE="${GOCACHE:-$(go env GOCACHE)}" GOMODCACHE="${GOMODCACHE:-$(go env GOMODCACHE)}"
  exec unshare --pid --fork --mount-proc --kill-child --ipc --mount bash "$0" --inside "$@"
fi
shift
root=$(realpath "$(dirname "$0")/..")
temp=$(realpath /tmp)
for folder in /dev/shm /var/tmp /run/lock; do [ ! -d "$folder" ] || mount -t tmpfs -o mode=1777 private "$folder"; done
# What the command needs stays where it is, also below /tmp.
mkdir /dev/shm/new && mount -t tmpfs -o mode=1777 private /dev/shm/new
for keep in "$root" "$HOME" "$GOCACHE" "$GOMODCACHE" "${XDG_CACHE_HOME:-}" "${PYENV_ROOT:-}"; do
  case "$keep" in "$temp"/*) mkdir -p "/dev/shm/new${keep#"$temp"}" && mount --rbind "$keep" "/dev/shm/new${keep#"$temp"}" ;; esac
done
mount --move /dev/shm/new "$temp" && rmdir /dev/shm/new
cd "$PWD" # what the shell had open may be covered now
status=0
"$@" || status=$?
for process in /proc/[0-9]*; do # they end together with this process, the first of them
  number=${process#/proc/}
  [ "$number" != 1 ] && line=$(tr '\0' ' ' 2>/dev/null <"$process/cmdline") && [ -n "$line" ] || continue
  echo "apart: ending process $number, which the part left running: $line" >&2
done
exit $status
