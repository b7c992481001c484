#!/usr/bin/env bash
# The Python SDK.
#   tools/sdk-python.sh test    pyright and the tests on one Python: a part of `make test`
#   tools/sdk-python.sh python  prints the python of the tests' environment, which lacks the client itself
#   tools/sdk-python.sh dist    writes the wheel and the sdist to sdk/python/dist
#   tools/sdk-python.sh all     dist, twice and compared; then every Python at hand (PYTHONS="3.9 3.10 …"): the wheel in a clean
#                               environment, all tests, a gigabyte of upload
#   tools/sdk-python.sh lock    writes requirements/test.txt from requirements/test.in
# The environments are in the cache, one for each Python and requirements/test.txt.
set -euo pipefail
cd "$(dirname "$0")/../sdk/python"
root=$(cd ../.. && pwd)
cache="${XDG_CACHE_HOME:-$HOME/.cache}/python-executor/sdk-python"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
export PYEXEC_TEST_BINARY="$root/bin/python-executor"
# requirements/test.txt has the frameworks of the adapters, so none of their tests may be skipped.
export PYEXEC_TEST_REQUIRE="${PYEXEC_TEST_REQUIRE:-},adapters"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# find_python VERSION prints the interpreter of a minor version.
find_python() {
  local candidate
  for candidate in "$(command -v "python$1" || true)" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python3; do
    if [ -x "$candidate" ] && "$candidate" -c "import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  return 1
}

# environment VERSION prints the python of an environment with all that the tests need, but without the client.
environment() {
  local python key folder
  python=$(find_python "$1")
  key=$( ("$python" -VV; cat requirements/test.txt) | sha256sum | cut -c1-16)
  folder="$cache/$1-$key"
  mkdir -p "$cache"
  exec 9>"$cache/.lock"
  flock 9
  if [ ! -d "$folder" ]; then
    echo "preparing the environment of Python $1 (once)" >&2
    rm -rf "$folder.new"
    "$python" -m venv "$folder.new" >&2
    "$folder.new/bin/python" -m pip install --quiet --require-hashes --only-binary :all: -r requirements/test.txt >&2
    mv "$folder.new" "$folder"
  fi
  exec 9>&-
  echo "$folder/bin/python"
}

# preferred prints the version of the Python that builds, and that runs the tests of `make test`.
preferred() {
  local version
  for version in 3.12 3.13 3.11 3.10 3.9; do
    if find_python "$version" >/dev/null; then
      echo "$version"
      return
    fi
  done
  echo "no Python 3.9 to 3.13 at hand" >&2
  return 1
}

# build FOLDER writes the wheel and the sdist. Their bytes depend on the tree only.
build() {
  SOURCE_DATE_EPOCH=1577836800 "$python" -m build --no-isolation --outdir "$1" . >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
}

python=$(environment "$(preferred)")
case "${1:-test}" in
  python)
    echo "$python"
    ;;
  lock)
    uv pip compile --universal --python-version 3.9 --generate-hashes --no-emit-find-links --no-emit-index-url --no-annotate \
      --no-header --quiet requirements/test.in -o requirements/test.txt
    ;;
  dist)
    rm -rf dist
    build dist
    ls dist
    ;;
  test)
    "$python" -m pyright --pythonpath "$python" >"$work/types" 2>&1 &
    types=$!
    PYTHONPATH=src "$python" -m pytest -p no:cacheprovider
    wait "$types" || { cat "$work/types"; exit 1; }
    ;;
  all)
    rm -rf dist
    build dist
    cp -r . "$work/copy"
    (cd "$work/copy" && rm -rf dist && build "$work/again")
    diff -r dist "$work/again"
    echo "the wheel and the sdist are the same bytes from another folder"
    "$python" -m pyright --pythonpath "$python"
    for version in ${PYTHONS:-3.9 3.10 3.11 3.12 3.13}; do
      if ! interpreter=$(find_python "$version"); then
        echo "=== Python $version: MISSING"
        continue
      fi
      echo "=== Python $version"
      "$interpreter" -m venv "$work/$version"
      "$work/$version/bin/python" -m pip install --quiet dist/*.whl
      "$work/$version/bin/python" -c 'import python_executor; print("clean environment: python_executor", python_executor.__version__)'
      rm -rf "${work:?}/$version"
      tested=$(environment "$version")
      # The cached environment stays as it is: the client goes into one above it.
      "$tested" -m venv --without-pip "$work/$version"
      purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
      "$tested" -c "$purelib" >"$("$work/$version/bin/python" -c "$purelib")/tested.pth"
      "$work/$version/bin/python" -m pip install --quiet --no-deps --no-index --force-reinstall dist/*.whl
      "$work/$version/bin/python" -m pytest -p no:cacheprovider
      "$work/$version/bin/python" -m pytest -p no:cacheprovider -m big
      "$work/$version/bin/python" -m pip install --quiet --no-deps --no-index --no-build-isolation --force-reinstall dist/*.tar.gz
      "$work/$version/bin/python" -m pytest -p no:cacheprovider tests/test_parts.py
    done
    ;;
  *)
    echo "usage: tools/sdk-python.sh test|python|dist|all|lock" >&2
    exit 2
    ;;
esac
