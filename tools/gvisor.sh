#!/usr/bin/env bash
# Installs gVisor's runsc of the distribution, where it is missing and can be installed. The long parts with Docker fail without it.
set -euo pipefail
if command -v runsc >/dev/null; then exit; fi
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "missing: runsc" >&2; exit; }
apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends runsc
