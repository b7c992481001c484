#!/usr/bin/env bash
# Interleaved benchmarks; raw numbers are kept below bench/ (docs/benchmarks.md quotes them).
set -euo pipefail
cd "$(dirname "$0")/.."
out="bench/$(date -u +%Y-%m-%d).json"
mkdir -p bench
case " $*" in *\ -cases*) out="${out%.json}-part.json" ;; esac
case " $*" in *\ -check*) out= ;; esac # its numbers are compared, and not kept
case " $*" in *\ -against*) # two builds need no peers
  exec go run ./tests/cmd/bench -binary bin/python-executor -out "${out%.json}-against.json" "$@" ;;
esac
cache="${XDG_CACHE_HOME:-$HOME/.cache}/python-executor"
venv="$cache/bench-venv"
if [ ! -x "$venv/bin/uv" ]; then # the peer: uv's real binary, pinned
  python3 -m venv "$venv" && "$venv/bin/pip" install -q "uv==0.13.9"
fi
jupyter="$cache/bench-jupyter"
if [ ! -e "$jupyter/ready" ]; then # the peer of sessions, pinned
  python3 -m venv "$jupyter" && "$jupyter/bin/pip" install -q "jupyter_kernel_gateway==3.0.1" "ipykernel==7.4.0" "websocket-client==1.9.2" && touch "$jupyter/ready"
fi
# The peer of the Nomad backend. A client of Nomad needs root.
[ "$(id -u)" != 0 ] || tools/nomad.sh >/dev/null
go run ./tests/cmd/bench -binary bin/python-executor -uv "$venv/bin/uv" -jupyter "$jupyter/bin/python" -out "$out" "$@"
