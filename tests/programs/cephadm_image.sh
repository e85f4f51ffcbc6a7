#!/bin/sh
# Makes the image of a lab node that has systemd, podman, cephadm and, for these, a container image
# localhost/ceph:lab of its own root file system. Run it as root, in a mount namespace.
#
#   cephadm_image.sh ROOT WORK TARGET START SIZE   ROOT is a lab image's tree, which is only read;
#                                                  WORK an empty directory; TARGET becomes a disk
#                                                  with an ext4 file system of SIZE from byte START
#                                                  on, before which a partition table has room
set -eu
root=$1 work=$2 target=$3 start=$4 size=$5
node=$work/node
packages='systemd-sysv cephadm ceph-mgr-cephadm ceph-mgr-modules-core ceph-base
    podman crun netavark catatonit'
# Services that nothing here needs, and whose start an emulated CPU spends minutes on.
masked='ceph-crash.service etcd.service cron.service e2scrub_reap.service rbdmap.service
    rtslib-fb-targetctl.service smartmontools.service tuned.service nvmefc-boot-connections.service
    nvmf-autoconnect.service getty@tty1.service serial-getty@ttyS0.service apt-daily.timer
    apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer logrotate.timer
    xfs_scrub_all.timer netavark-dhcp-proxy.service netavark-dhcp-proxy.socket'
# Modules of the manager that neither a cluster nor cephadm needs: each takes many seconds to load.
modules='alerts dashboard diskprediction_local feedback influx insights localpool mds_autoscaler
    mirroring osd_perf_query osd_support prometheus restful rgw rook selftest smb snap_schedule stats
    telegraf test_orchestrator zabbix'

mkdir -p "$work/upper" "$work/overlay" "$work/containers" "$node"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/overlay" "$node"
mount -t proc proc "$node/proc"
mount --rbind /dev "$node/dev"
mount --rbind /sys "$node/sys"

cp /etc/resolv.conf "$node/etc/resolv.conf"
apt-config dump | grep -E '^Acquire::(Check-Valid-Until|https?::Proxy)' \
    > "$node/etc/apt/apt.conf.d/99host" || :
printf '#!/bin/sh\nexit 101\n' > "$node/usr/sbin/policy-rc.d"
chmod +x "$node/usr/sbin/policy-rc.d"
chroot "$node" apt-get -q update
# shellcheck disable=SC2086 # one word a package
DEBIAN_FRONTEND=noninteractive chroot "$node" \
    apt-get -q -y --no-install-recommends install $packages
chroot "$node" apt-get clean
rm -rf "$node"/usr/sbin/policy-rc.d "$node"/etc/apt/apt.conf.d/99host "$node"/var/lib/apt/lists/*
: > "$node/etc/resolv.conf"
for module in $modules; do rm -rf "$node/usr/share/ceph/mgr/$module"; done
# A bcrypt in Rust is loaded by one interpreter of a process alone, and Reef's manager has many,
# each of which imports it for the dashboard's passwords.
bcrypt=$node/usr/lib/python3/dist-packages/bcrypt
if grep -q '^import bcrypt' "$node/usr/share/ceph/mgr/mgr_util.py"; then
    rm -rf "${bcrypt:?}"/*
    cat > "$bcrypt/__init__.py" <<'END'
"""In place of the one in Rust, for a manager whose dashboard is never asked."""


def gensalt(rounds=12, prefix=b"2b"):
    raise NotImplementedError


hashpw = checkpw = kdf = gensalt
END
fi

mkdir -p "$node/var/lib/containers"
mount --bind "$work/containers" "$node/var/lib/containers"
mount -t tmpfs tmpfs "$node/run"
mount -t tmpfs tmpfs "$node/tmp"
# What cephadm tells Ceph's images by, and a daemon a container.
tar -C "$node" --one-file-system --exclude=./boot --exclude=./usr/lib/modules \
    --exclude=./var/lib/containers --exclude=./usr/bin/podman -cf - . |
    chroot "$node" podman --storage-driver overlay import \
        --change 'LABEL ceph=True' --change 'ENV CEPH_IS_CONTAINER=1' - localhost/ceph:lab
umount -l "$node/run" "$node/tmp" "$node/proc" "$node/dev" "$node/sys"

# systemd follows the lab's own first process, and says to the console what sshd would.
sed -i -e 's/^chronyd$/udevadm control --exit/' \
    -e 's,^exec /usr/sbin/sshd -D -e$,exec /usr/lib/systemd/systemd,' \
    "$node/usr/lib/cbt-crypto-lab/init"
mkdir -p "$node/etc/systemd/system/ssh.service.d"
cat > "$node/etc/systemd/system/ssh.service.d/console.conf" <<'END'
[Service]
ExecStartPost=/bin/sh -c "echo Server listening on port 22. > /dev/ttyS0"
END
rm -f "$node"/etc/systemd/system/*.wants/ceph*
for unit in $masked; do ln -sf /dev/null "$node/etc/systemd/system/$unit"; done
mke2fs -q -t ext4 -O ^has_journal -m 0 -E "root_owner=0:0,offset=$start" -d "$node" "$target" "$size"
