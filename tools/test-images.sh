#!/usr/bin/env bash
# Makes the images that the Docker tests run in, once per machine, and prints the folder that holds them as tars:
#   python.tar  pyexec-test:python  Debian with python3, pip, node and CA certificates
#   bare.tar    pyexec-test:bare    python3 and the libraries it needs, without a shell, tar or anything else
# They come from Debian's packages, because a registry of images is not everywhere within reach. Needs root and debootstrap.
set -euo pipefail
version=1 # a change of what is below makes new images
dir="${XDG_CACHE_HOME:-$HOME/.cache}/python-executor/test-images-$version"
exec 3>&1 1>&2
mkdir -p "$dir"
exec 9>"$dir.lock"
flock 9 # tests of several packages may ask at once
if [ ! -f "$dir/bare.tar" ]; then
  work=$(mktemp -d "$dir/work.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  echo "making the test images (once; some minutes)"
  debootstrap --variant=minbase --include=python3,python3-pip,nodejs,ca-certificates bookworm "$work/root" >"$dir/debootstrap.log"
  rm -rf "$work/root"/var/cache/apt/archives/*.deb "$work/root"/var/lib/apt/lists/* "$work/root"/usr/share/{doc,man,locale}/*
  tar -C "$work/root" --numeric-owner -cf "$dir/python.tar.part" .
  mv "$dir/python.tar.part" "$dir/python.tar"
  bare="$work/bare"
  mkdir -p "$bare"/{usr/bin,usr/lib,usr/lib64,etc,tmp,proc,sys,dev,work}
  chmod 1777 "$bare/tmp"
  ln -s usr/lib "$bare/lib" && ln -s usr/lib64 "$bare/lib64" && ln -s usr/bin "$bare/bin"
  (cd "$work/root" && cp -a --parents usr/lib/python3* "$bare/" && cp -a --parents usr/bin/python3* "$bare/")
  rm -rf "$bare"/usr/lib/python3/dist-packages/pip*
  find "$work/root"/usr/bin/python3.11 "$work/root"/usr/lib/python3*/lib-dynload -type f | sed "s#^$work/root##" >"$work/elves"
  # shellcheck disable=SC2046 # a list of words
  chroot "$work/root" ldd $(cat "$work/elves") 2>/dev/null | awk '{for (i=1;i<=NF;i++) if ($i ~ /^\//) print $i}' | sed 's/:$//' | sort -u >"$work/libs"
  while read -r lib; do
    real=$(chroot "$work/root" readlink -f "$lib")
    (cd "$work/root" && cp -a --parents ".$real" "$bare/")
    mkdir -p "$bare$(dirname "$lib")" 2>/dev/null || true
    [ "$real" = "$lib" ] || [ -e "$bare$lib" ] || [ -L "$bare$lib" ] || ln -s "$real" "$bare$lib"
  done <"$work/libs"
  tar -C "$bare" --numeric-owner -cf "$dir/bare.tar.part" .
  mv "$dir/bare.tar.part" "$dir/bare.tar"
fi
echo "$dir" >&3
