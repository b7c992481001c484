#!/usr/bin/env bash
# Runs tests of limits, stopping, out of memory and forks where control groups are version 2 under systemd, as on nearly every machine
# of a user: in a Debian that QEMU boots (tools/v2/machine.sh). tools/v2/suite says which tests run, and where. The result is red if one
# of them fails, is skipped, or did not run.
#
#   tools/v2.sh [WHERE [PACKAGE]]   only the blocks of that place and package
#
# bin/v2, or the folder V2_OUT, keeps what the machine printed: results, and console, which is its kernel and systemd. QEMU has no KVM here, so all takes about
# half an hour on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
bound=2h # only a hang of the machine reaches it
missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need qemu-system-x86_64 qemu-system-x86
need debootstrap debootstrap
need mke2fs e2fsprogs
need setpriv util-linux
if [ ${#missing[@]} -gt 0 ]; then
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "missing: ${missing[*]}" >&2; exit 1; }
  # No service is started by being installed: policy-rc.d says no.
  policy=/usr/sbin/policy-rc.d
  [ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' >$policy && chmod 0755 $policy && trap 'rm -f $policy' EXIT; }
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
  [ -z "$(trap -p EXIT)" ] || rm -f $policy
fi
machine=$(tools/v2/machine.sh)
export GOFLAGS="${GOFLAGS:-} -trimpath"
make --no-print-directory build

work=$(mktemp -d)
out=${V2_OUT:-bin/v2}
rm -rf $out && mkdir -p $out
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP

awk -v where="${1:-}" -v package="${2:-}" '!/^#/ && NF && (where == "" || $1 == where) && (package == "" || $2 == package)' tools/v2/suite >"$work/lines"
[ -s "$work/lines" ] || { echo "tools/v2/suite has no such block" >&2; exit 1; }

# The suite's disk: the product, the test binaries, and their packages' folders with what they read.
suite="$work/suite"
mkdir -p "$suite/bin"
cp bin/python-executor tools/v2/lane tools/v2/block tools/v2/cli "$suite/"
mv "$suite/python-executor" "$suite/bin/"
git ls-files -z core/runner plugins/backend-uv | xargs -0 cp --parents -t "$suite"
while read -r package; do
  (cd "$package" && CGO_ENABLED=0 go test -c -tags embedrunner -ldflags '-s -w' -o "$suite/$package/v2.test" .)
done < <(awk '$2 != "cli" {print $2 == "law" ? "plugins/backend-uv" : $2}' "$work/lines" | sort -u)
# The test binary of the uv backend is also a uv, which suffices where nothing is installed.
[ ! -e "$suite/plugins/backend-uv/v2.test" ] || ln "$suite/plugins/backend-uv/v2.test" "$suite/bin/uv" # no symbolic link: it would be resolved
ln -s plugins/backend-uv "$suite/law"

# The blocks that the machine runs, and beside them every test that must pass in each.
while read -r where package tests; do
  case $package in
  law) pattern="^TestConformance\$/^direct\$/^(${tests// /|})_" ;;
  cli) pattern=$tests ;;
  *)
    if [ "${tests%% *}" = . ]; then
      tests=$("$suite/$package/v2.test" -test.list '^Test' | grep -vxFf <(tr ' ' '\n' <<<"$tests" | sed 's/^-//') | paste -sd ' ')
    fi
    pattern="^(${tests// /|})\$"
    ;;
  esac
  echo "$where $package $pattern" >>"$suite/blocks"
  for test in $tests; do
    [ "$package" != law ] || test="TestConformance/direct/$test"
    echo "$where $package $test" >>"$work/wanted"
  done
done <"$work/lines"
chmod -R a+rX "$suite"
mke2fs -q -t ext4 -L suite -d "$suite" "$work/suite.img" "$(($(du -sm "$suite" | cut -f1) + 64))M"
truncate -s 512M "$work/swap.img"
mkswap -q "$work/swap.img" 2>/dev/null || mkswap "$work/swap.img" >/dev/null

echo "booting the machine for $(wc -l <"$work/wanted") tests"
begin=$SECONDS status=0
# The machine ends with this script, however that ends. Its root is not changed: what it writes goes to a file of QEMU's.
# Its clock counts instructions (-icount): a busy host makes it run later and not slower, and time in which it only waits costs nothing.
# That needs one processor: QEMU has several only on threads of the host, or does not come up. A copy by `rep movsb` is emulated byte by
# byte, so the machine has no fast one.
TMPDIR="$work" setpriv --pdeathsig TERM timeout -k 30 "$bound" nice -n 15 qemu-system-x86_64 \
  -accel tcg,thread=single -icount shift=2,sleep=off -rtc clock=vm -smp 1 -M q35 -cpu max,-erms,-fsrm,-la57 -m 3072 \
  -display none -monitor none -no-reboot -nic none \
  -kernel "$machine/vmlinuz" -initrd "$machine/initrd" -append "console=ttyS0 rw panic=-1 no_timer_check tsc=reliable lpj=4000000 mitigations=off random.trust_cpu=on" \
  -drive file="$machine/root.img",format=raw,if=virtio,snapshot=on \
  -drive file="$work/suite.img",format=raw,if=virtio,readonly=on \
  -drive file="$work/swap.img",format=raw,if=virtio \
  -serial file:$out/console -serial file:$out/results </dev/null &
qemu=$!
trap 'kill "$qemu" 2>/dev/null && wait "$qemu"; rm -rf "$work"' EXIT
wait "$qemu" || status=$?
trap 'rm -rf "$work"' EXIT
echo "the machine ran for $((SECONDS - begin)) s"
tools/v2/judge "$work/wanted" $out/results || status=1
[ $status = 0 ] || { echo "the machine's last words:"; tail -n 20 $out/console; }
exit $status
