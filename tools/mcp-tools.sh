#!/usr/bin/env bash
# Installs the pinned tools of the MCP tests (tools/mcp/package-lock.json) into the cache, once, and prints the folder.
# npm alone must be there: a Node that the tools accept comes with them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
key=$(cat "$here/mcp/package.json" "$here/mcp/package-lock.json" | sha256sum | cut -c1-16)
dir="${XDG_CACHE_HOME:-$HOME/.cache}/python-executor/mcp-tools-$key"
mkdir -p "$dir"
exec 9>"$dir.lock"
flock 9
if [ ! -f "$dir/complete" ]; then
  cp "$here/mcp/package.json" "$here/mcp/package-lock.json" "$dir/"
  (cd "$dir" && npm ci --no-audit --no-fund --ignore-scripts >&2)
  touch "$dir/complete"
fi
echo "$dir"
