#!/usr/bin/env bash
# Makes the images that the Docker tests run in, once per machine, and prints the folder that holds them as tars:
#   python.tar  pyexec-test:python  Debian with python3, pip, node and CA certificates
#   bare.tar    pyexec-test:bare    python3 and the libraries it needs, without a shell, tar or anything else
# The root file system comes from Debian's packages (as root, with debootstrap), because a registry of images is not
# everywhere within reach; else from an image that a Docker pulls. Several may ask at once, and it may be killed: a tar is
# there when it is whole, and what was begun is removed by the next one.
set -euo pipefail
version=1 # a change of what is below makes new images
dir="${XDG_CACHE_HOME:-$HOME/.cache}/python-executor/test-images-$version"
include=python3,python3-pip,nodejs,ca-certificates
exec 3>&1 1>&2 # stdout is for the folder alone
mkdir -p "$dir"

# discard removes a work folder, and first what debootstrap mounted in it: removing through a mount of /proc would fail,
# through one of /sys it would do harm.
discard() {
  awk -v below="$1/" 'index($2, below) == 1 {print $2}' /proc/self/mounts | sort -r | while read -r place; do umount -l "$place"; done
  rm -rf --one-file-system "$1"
}

# list_libraries, run inside the root file system: every library that python3 and its modules are linked with, and the file
# that it really is.
# shellcheck disable=SC2016 # expanded there
list_libraries='for lib in $(ldd $(find /usr/bin/python3.* /usr/lib/python3*/lib-dynload -type f ! -name "*-config") 2>/dev/null |
  tr " \t:" "\n" | grep ^/ | grep -v -e lib-dynload -e /usr/bin/ | sort -u); do echo "$lib $(readlink -f "$lib")"; done >/libraries'

# from_packages makes a root file system in $1 with debootstrap.
from_packages() {
  [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null || return 1
  debootstrap --variant=minbase --include="$include" bookworm "$1" </dev/null >"$dir/debootstrap.log" 2>&1 &&
    chroot "$1" /bin/sh -c "$list_libraries" && return
  tail -n 20 "$dir/debootstrap.log"
  return 1
}

# from_registry makes a root file system in $1 with whatever Docker there is.
from_registry() {
  local base=debian:bookworm-slim name="pyexec-test-images-$$" status=0
  command -v docker >/dev/null && timeout 20 docker version >/dev/null 2>&1 || return 1
  timeout 300 docker pull -q "$base" >/dev/null </dev/null || return 1
  docker run --name "$name" "$base" sh -c "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ${include//,/ } && $list_libraries" </dev/null || status=1
  [ $status = 0 ] && { mkdir -p "$1" && docker export "$name" | tar -C "$1" --exclude='./dev/*' --exclude='dev/*' -xf - || status=1; }
  docker rm -f "$name" >/dev/null || true
  return $status
}

make_python() { # make_python WORK: $1/root and python.tar
  rm -rf "$1/root"/var/cache/apt/archives/*.deb "$1/root"/var/lib/apt/lists/* "$1/root"/usr/share/{doc,man,locale}/*
  rm -f "$1/root/.dockerenv"
  tar -C "$1/root" --numeric-owner --exclude=./libraries -cf "$dir/python.tar.part" .
}

make_bare() { # make_bare WORK: $1/bare and bare.tar, out of $1/root
  local root="$1/root" bare="$1/bare" lib real
  [ "$(wc -l <"$root/libraries")" -ge 5 ] || { echo "found no libraries of python3"; return 1; }
  mkdir -p "$bare"/{usr/bin,usr/lib,usr/lib64,etc,tmp,proc,sys,dev,work}
  chmod 1777 "$bare/tmp"
  ln -s usr/lib "$bare/lib" && ln -s usr/lib64 "$bare/lib64" && ln -s usr/bin "$bare/bin"
  (cd "$root" && cp -a --parents usr/lib/python3* usr/bin/python3* "$bare/")
  rm -rf "$bare"/usr/lib/python3/dist-packages/pip*
  while read -r lib real; do
    (cd "$root" && cp -a --parents ".$real" "$bare/")
    mkdir -p "$bare$(dirname "$lib")" 2>/dev/null || true
    [ "$real" = "$lib" ] || [ -e "$bare$lib" ] || [ -L "$bare$lib" ] || ln -s "$real" "$bare$lib"
  done <"$root/libraries"
  tar -C "$bare" --numeric-owner -cf "$dir/bare.tar.part" .
}

# Children keep the lock: what a killed run left running is waited for, not removed under its feet.
exec 9>"$dir/.lock"
flock 9
if [ ! -f "$dir/bare.tar" ] || [ ! -f "$dir/python.tar" ]; then
  for left in "$dir"/work.* "$dir"/*.part; do
    [ -e "$left" ] && discard "$left"
  done
  work=$(mktemp -d "$dir/work.XXXXXX")
  trap 'discard "$work"' EXIT
  trap 'exit 1' INT TERM HUP
  echo "making the test images (once; a minute or two)"
  mkdir "$work/root"
  if ! from_packages "$work/root"; then
    discard "$work/root" && mkdir "$work/root"
    from_registry "$work/root" || { echo "the test images need root and debootstrap, or a Docker that can pull debian:bookworm-slim"; exit 1; }
  fi
  make_python "$work"
  make_bare "$work"
  mv "$dir/python.tar.part" "$dir/python.tar"
  mv "$dir/bare.tar.part" "$dir/bare.tar"
fi
echo "$dir" >&3
