#!/bin/sh
# Becomes the first process of a namespace node. Started in new mount, pid, network, uts and ipc
# namespaces, so that every mount made here is gone when the node is.
#
#   node.sh IMAGE_ROOT NODE_DIR NAME ADDRESS/PREFIX [RELEASE=OTHER_IMAGE_ROOT]...
set -eu
image=$1 node=$2 name=$3 address=$4
shift 4
root=$node/root
mkdir -p "$root" "$node/upper" "$node/work"

# Where overlayfs cannot keep its upper directory (on another overlayfs, say), the node is a copy.
if ! mount -t overlay lab -o "lowerdir=$image,upperdir=$node/upper,workdir=$node/work" "$root"
then
    echo "no overlayfs on $node: copying the image instead"
    cp -a --reflink=auto "$image/." "$root/"
    mount --bind "$root" "$root"
fi
tar -xf "$node/seed.tar" -C "$root"

mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 dev "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm" "$root/dev/disk" "$root/dev/disk/by-partlabel"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -t tmpfs -o mode=755 run "$root/run"
mkdir -p "$root/run/sshd" "$root/run/lock"
for device in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
    numbers=${device#*:}
    mknod -m 666 "$root/dev/${device%%:*}" c "${numbers%:*}" "${numbers#*:}"
done
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for stream in stdin:0 stdout:1 stderr:2; do
    ln -s "/proc/self/fd/${stream#*:}" "$root/dev/${stream%:*}"
done
# Data disks are sparse files outside the overlay, under the names that partitions would have; those
# in the list have a loop device. Mappings on them are made by the node's own tools, without udev.
mount --bind "$node/disks" "$root/srv/disks"
for disk in "$node"/disks/*; do
    [ -e "$disk" ] || continue
    ln -s "/srv/disks/${disk##*/}" "$root/dev/disk/by-partlabel/${disk##*/}-data"
done
while read -r disk major minor; do
    mknod -m 660 "$root/dev/loop$minor" b "$major" "$minor"
    ln -sf "/dev/loop$minor" "$root/dev/disk/by-partlabel/$disk-data"
done < "$node/devices"
mkdir "$root/dev/mapper"
control=$(sed -n 's/^ *\([0-9]*\) device-mapper$/\1/p' /proc/misc)
[ -z "$control" ] || mknod -m 600 "$root/dev/mapper/control" c 10 "$control"
# What looks a mapping up by its number finds it by the kernel's name, which udev would have made.
major=$(sed -n 's/^ *\([0-9]*\) device-mapper$/\1/p' /proc/devices)
[ -z "$major" ] || for minor in $(seq 0 63); do
    mknod -m 660 "$root/dev/dm-$minor" b "$major" "$minor"
done

# Other releases of Ceph, each a whole root file system, to be read only: /opt/ceph-RELEASE.
for build; do
    mkdir -p "$root/opt/ceph-${build%%=*}"
    mount --bind "${build#*=}" "$root/opt/ceph-${build%%=*}"
    mount -o remount,bind,ro "$root/opt/ceph-${build%%=*}"
done

hostname "$name"
cd "$root"
mkdir -p .old
pivot_root . .old
umount -l /.old
rmdir /.old

ip link set lo up
tries=0
until [ -e /sys/class/net/eth0 ]; do
    tries=$((tries + 1))
    [ $tries -lt 200 ] || { echo "eth0 did not come within 20 s"; exit 1; }
    sleep 0.1
done
ip address add "$address" dev eth0
ip link set eth0 up
# As on any Debian, and no higher: pdsh closes every possible descriptor for each command.
# shellcheck disable=SC3045 # dash and bash know -S
ulimit -S -n 1024
exec /usr/sbin/sshd -D -e
