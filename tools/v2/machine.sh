#!/usr/bin/env bash
# Makes the machine of tools/v2.sh, once, and prints the folder that holds it:
#   vmlinuz, initrd  Debian's cloud kernel, and what loads the drivers of its disks
#   root.img         a Debian with systemd, control groups v2, Python and Node, and a user tester
# Several may ask at once, and it may be killed: the folder has a root.img when all is whole.
set -euo pipefail
version=1 # a change of what is below makes a new machine
here=$(cd "$(dirname "$0")" && pwd)
dir="${XDG_CACHE_HOME:-$HOME/.cache}/python-executor/v2-machine-$version"
# kmod and udev load the drivers, and passwd and the libraries of PAM are there for the user's login.
include=systemd-sysv,udev,kmod,dbus,libpam-systemd,dbus-user-session,passwd,busybox-static,cpio,python3,python3-venv,python3-pip,nodejs,procps,ca-certificates
exec 3>&1 1>&2 # stdout is for the folder alone
mkdir -p "$dir"

# discard removes a work folder, and first what debootstrap mounted in it: removing through a mount of /proc would fail.
discard() {
  awk -v below="$1/" 'index($2, below) == 1 {print $2}' /proc/self/mounts | sort -r | while read -r place; do umount -l "$place"; done
  rm -rf --one-file-system "$1"
}

# make_kernel WORK: vmlinuz and the modules of the kernel, in $1/root. Only dpkg -x: the machine needs no initramfs-tools.
make_kernel() {
  local root="$1/root" package
  chroot "$root" apt-get update -qq </dev/null
  package=$(chroot "$root" apt-cache depends linux-image-cloud-amd64 | awk '$1 == "Depends:" {print $2; exit}')
  # Not over the root: its /lib is a link, which dpkg -x would replace.
  chroot "$root" sh -c "cd /tmp && apt-get download -qq $package && dpkg -x $package*.deb /kernel" </dev/null
  kernel=${package#linux-image-}
  mv "$root/kernel/boot/vmlinuz-$kernel" "$1/vmlinuz"
  mkdir -p "$root/usr/lib/modules"
  mv "$root/kernel/lib/modules/$kernel" "$root/usr/lib/modules/"
  rm -r "$root/kernel" "$root/tmp/$package"*.deb
  chroot "$root" depmod "$kernel"
}

# make_initrd WORK: busybox, the drivers of the disks in the order in which modprobe would load them, and the script that
# goes over to the root. It is packed by the root's own tools, so the host needs none.
make_initrd() {
  local root="$1/root" initrd="$1/root/initrd" module n=0
  mkdir -p "$initrd"/{bin,proc,sys,dev,root,modules}
  cp "$root/bin/busybox" "$initrd/bin/busybox"
  chroot "$root" sh -c "modprobe -S $kernel -a -D virtio_pci virtio_blk ext4" | awk '$1 == "insmod" && !seen[$2]++ {print $2}' >"$1/modules"
  while read -r module; do
    n=$((n + 1))
    cp "$root$module" "$initrd/modules/$(printf '%02d-%s' $n "${module##*/}")"
  done <"$1/modules"
  install -m 0755 "$here/init" "$initrd/init"
  chroot "$root" sh -c 'cd /initrd && find . | cpio -o -H newc --quiet | gzip -1' >"$1/initrd"
  rm -r "$initrd"
}

# make_root WORK: the disk.
make_root() {
  local root="$1/root" unit
  chroot "$root" useradd --create-home --shell /bin/bash tester
  printf 'LABEL=suite /suite ext4 ro 0 0\n' >"$root/etc/fstab"
  mkdir "$root/suite"
  echo v2 >"$root/etc/hostname"
  printf '127.0.0.1 localhost v2\n' >"$root/etc/hosts"
  # A user's systemd and its services start at the boot, as `loginctl enable-linger tester` does it.
  mkdir -p "$root/var/lib/systemd/linger" && touch "$root/var/lib/systemd/linger/tester"
  # The lane is a script of the suite's disk, so that a change of it needs no new machine.
  cp "$here/lane.service" "$root/etc/systemd/system/lane.service"
  mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
  ln -s ../lane.service "$root/etc/systemd/system/multi-user.target.wants/lane.service"
  # What only costs the machine time.
  for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer e2scrub_all.timer e2scrub_reap.service systemd-timesyncd.service getty@tty1.service serial-getty@ttyS0.service serial-getty@ttyS1.service; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
  done
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}/*
  mke2fs -q -t ext4 -L root -d "$root" "$1/root.img" 3G
}

exec 9>"$dir/.lock"
flock 9
if [ ! -f "$dir/root.img" ]; then
  for left in "$dir"/work.*; do
    [ -e "$left" ] && discard "$left"
  done
  [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null || { echo "the machine needs root and debootstrap"; exit 1; }
  work=$(mktemp -d "$dir/work.XXXXXX")
  trap 'discard "$work"' EXIT
  trap 'exit 1' INT TERM HUP
  chmod 0755 "$work"
  echo "making the machine (once; some minutes)"
  mkdir "$work/root"
  debootstrap --variant=minbase --include="$include" bookworm "$work/root" </dev/null >"$dir/debootstrap.log" 2>&1 ||
    { tail -n 20 "$dir/debootstrap.log"; exit 1; }
  make_kernel "$work"
  make_initrd "$work"
  make_root "$work"
  mv "$work/vmlinuz" "$work/initrd" "$dir/"
  mv "$work/root.img" "$dir/root.img"
fi
echo "$dir" >&3
