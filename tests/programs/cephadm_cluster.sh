#!/bin/sh
# Makes a cluster by cephadm on this host, of cephadm_image.sh: `bootstrap`, and an OSD on each of
# the devices by `ceph-volume` and `deploy`. Nothing of this project has a part in it.
#
#   cephadm_cluster.sh bootstrap         a monitor and a manager
#   cephadm_cluster.sh osds DEVICE ...   and the pool rbd; also `--db-devices DEVICE`
set -eu
image=localhost/ceph:lab
cephadm="cephadm --image $image"

# What makes no sense on one host is left out, and what the dashboard and monitoring need. Debian's
# python3-cryptography is in Rust, so Reef's manager cannot load the cephadm module: bootstrap ends
# there, when monitor, manager, keys and configuration are made.
bootstrap() {
    printf '%s\n' '[global]' 'osd_memory_target = 900000000' 'osd_pool_default_size = 2' \
        'osd_pool_default_pg_autoscale_mode = off' > /root/initial.conf
    $cephadm --retry 200 --timeout 1200 bootstrap --config /root/initial.conf \
        --mon-ip "$(getent hosts "$(hostname)" | cut -d ' ' -f 1)" --single-host-defaults \
        --skip-pull --skip-dashboard --skip-monitoring-stack --skip-firewalld --skip-ssh \
        --skip-admin-label --allow-mismatched-release > /root/bootstrap.log 2>&1 ||
        grep "module 'cephadm' reports that it cannot run .* PyO3" /root/bootstrap.log || {
        tail -n 40 /root/bootstrap.log
        exit 1
    }
    ceph balancer off  # what it moves by itself is nobody's change
    $cephadm shell -- true  # the first one makes its directories
}

# What the cephadm module would run by ssh.
osds() {
    fsid=$(ceph fsid)
    before=$(ceph osd ls)
    ceph auth get client.bootstrap-osd > /root/bootstrap-osd.keyring
    # A container may take longer to start than its unit has, where a processor is emulated.
    mkdir -p "/etc/systemd/system/ceph-$fsid@.service.d"
    printf '[Service]\nTimeoutStartSec=1800\n' \
        > "/etc/systemd/system/ceph-$fsid@.service.d/slow.conf"
    systemctl daemon-reload
    for device; do
        wipefs -qa "$device"?* "$device" || :
        partx -d "$device" 2> /dev/null || :
    done
    $cephadm --timeout 1200 ceph-volume --fsid "$fsid" --config /etc/ceph/ceph.conf \
        --keyring /root/bootstrap-osd.keyring -- \
        lvm batch --bluestore --prepare --yes --no-systemd "$@"
    lvs --noheadings -o lv_tags |
        sed -n 's/.*ceph.osd_fsid=\([^,]*\),ceph.osd_id=\([^,]*\).*/\2 \1/p' | sort -u |
        while read -r id uuid; do
            ! echo "$before" | grep -qx "$id" || continue
            deploy "$id" "$uuid"
        done
    settled
}

deploy() {
    ceph auth get "osd.$1" | python3 -c '
import json, sys
print(json.dumps({"config": open("/etc/ceph/ceph.conf").read(), "keyring": sys.stdin.read()}))
' > "/root/osd.$1.json"
    $cephadm --timeout 1800 deploy --fsid "$fsid" --name "osd.$1" --osd-fsid "$2" \
        --config-json "/root/osd.$1.json" < /dev/null
}

pool() {
    ceph osd pool ls | grep -qx rbd || {
        ceph osd pool create rbd 8 8
        rbd pool init rbd
    }
}

# Every OSD is up and every placement group is clean.
settled() {
    until ceph osd stat | grep -q '^\([0-9]*\) osds: \1 up'; do sleep 5; done
    pool
    until ceph pg stat | grep -q '^\([0-9]*\) pgs: \1 active+clean;'; do sleep 5; done
}

"$@"
