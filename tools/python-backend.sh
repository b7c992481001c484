#!/usr/bin/env bash
# Builds the example backend in Python (examples/backends/python) and prints the plugin's path: a virtual environment with the
# pinned packages, and a zipapp that runs in it. Both lie in the cache, under a key of all that goes in.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
source="$here/examples/backends/python"
proto="$here/core/executor/wire/proto"
python=${PYTHON:-python3}
key=$( (cat "$0" "$source/requirements.txt"; "$python" -VV; cd "$here"; find "${source#"$here/"}/local_backend" "${proto#"$here/"}" \
  \( -name '*.py' -o -name '*.proto' \) -print0 | sort -z | xargs -0 sha256sum) | sha256sum | cut -c1-16)
dir="${XDG_CACHE_HOME:-$HOME/.cache}/python-executor/python-backend-$key"
mkdir -p "$dir"
exec 9>"$dir.lock"
flock 9
if [ ! -f "$dir/complete" ]; then
  "$python" -m venv --clear "$dir/venv" >&2
  "$dir/venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r "$source/requirements.txt" >&2
  rm -rf "$dir/app" && cp -R "$source/local_backend" "$dir/" && mkdir "$dir/app" && mv "$dir/local_backend" "$dir/app/"
  "$dir/venv/bin/python" -m grpc_tools.protoc -I "$proto" --python_out="$dir/app" --grpc_python_out="$dir/app" "$proto"/pyexec/v1/*.proto >&2
  "$python" -m zipapp "$dir/app" -o "$dir/local-backend.pyz" -p "$dir/venv/bin/python" -m local_backend.main:main
  touch "$dir/complete"
fi
echo "$dir/local-backend.pyz"
