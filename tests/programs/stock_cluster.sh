#!/bin/sh
# Makes a cluster as Ceph's page on manual deployment does: by the release's own tools, in /etc/ceph
# and /var/lib/ceph, with no ms_ option. Run it where those directories may be written to, as in
# isolated.sh. Nothing of this project has a part in it.
#
#   stock_cluster.sh [OPTION = VALUE ...]   each for [global] of ceph.conf
#
# $OSDS of them on files, 2 when it is not set; one more by `ceph-volume --dmcrypt` on each of the
# $DEVICES, by ceph-volume without it on each of the $PLAIN_DEVICES, and one for each line of $VOLUMES,
# which has the words for ceph-volume behind --data. $CLUSTER is its name, and so that of its files;
# $MON_HOST stands for mon_host in its ceph.conf, $MON_ADDRESSES in its map.
set -eu
cluster=${CLUSTER:-ceph}
[ "$cluster" = ceph ] || export CEPH_ARGS="--cluster $cluster"
fsid=$(cat /proc/sys/kernel/random/uuid)
host=$(hostname)
work=$(mktemp -d)
admin=/etc/ceph/$cluster.client.admin.keyring
bootstrap=/var/lib/ceph/bootstrap-osd/$cluster.keyring
mkdir -p /etc/ceph /var/lib/ceph/mon/"$cluster-$host" /var/lib/ceph/mgr/"$cluster-$host" \
    /var/lib/ceph/bootstrap-osd /var/run/ceph /var/log/ceph
{
    printf '[global]\n'
    printf '%s\n' "fsid = $fsid" "mon_initial_members = $host" "mon_host = ${MON_HOST:-127.0.0.1}" \
        "public_network = 127.0.0.0/8" "auth_cluster_required = cephx" \
        "auth_service_required = cephx" "auth_client_required = cephx" \
        "osd_pool_default_size = 2" "osd_pool_default_min_size = 1" \
        "osd_crush_chooseleaf_type = 0" "$@"
} > /etc/ceph/"$cluster".conf

exec > "$work/log" 2>&1
trap '[ $? = 0 ] || cat "$work/log" >/dev/tty 2>/dev/null' EXIT
ceph-authtool --create-keyring "$work/mon.keyring" --gen-key -n mon. --cap mon 'allow *'
ceph-authtool --create-keyring $admin --gen-key -n client.admin --cap mon 'allow *' \
    --cap osd 'allow *' --cap mds 'allow *' --cap mgr 'allow *'
ceph-authtool --create-keyring $bootstrap --gen-key -n client.bootstrap-osd \
    --cap mon 'profile bootstrap-osd' --cap mgr 'allow r'
ceph-authtool "$work/mon.keyring" --import-keyring $admin
ceph-authtool "$work/mon.keyring" --import-keyring $bootstrap
monmaptool --create --addv "$host" "${MON_ADDRESSES:-[v2:127.0.0.1:3300,v1:127.0.0.1:6789]}" \
    --fsid "$fsid" "$work/monmap"
ceph-mon --mkfs -i "$host" --monmap "$work/monmap" --keyring "$work/mon.keyring"
ceph-mon -i "$host"
ceph auth get-or-create mgr."$host" mon 'allow profile mgr' osd 'allow *' mds 'allow *' \
    > /var/lib/ceph/mgr/"$cluster-$host"/keyring
ceph-mgr -i "$host"
for _ in $(seq 1 "${OSDS:-2}"); do
    uuid=$(cat /proc/sys/kernel/random/uuid)
    secret=$(ceph-authtool --gen-print-key)
    id=$(echo "{\"cephx_secret\": \"$secret\"}" |
        ceph osd new "$uuid" -i - -n client.bootstrap-osd -k $bootstrap)
    data=/var/lib/ceph/osd/$cluster-$id
    mkdir -p "$data"
    ceph-authtool --create-keyring "$data/keyring" --name osd."$id" --add-key "$secret"
    truncate -s 8G "$data/block"
    ceph-osd -i "$id" --mkfs --osd-uuid "$uuid"
    # Debian's OSDs look for their classes below the working directory.
    (cd / && ceph-osd -i "$id")
done
volume() {
    ceph-volume lvm create --bluestore --no-systemd --data "$@"
    # The newest one is this device's.
    (cd / && ceph-osd -i "$(ceph osd ls | tail -n 1)")
}
for device in ${DEVICES:-}; do volume "$device" --dmcrypt; done
for device in ${PLAIN_DEVICES:-}; do volume "$device"; done
printf '%s\n' "${VOLUMES:-}" > "$work/volumes"
# shellcheck disable=SC2086
while read -r words <&3; do [ -z "$words" ] || volume $words; done 3< "$work/volumes"
# Of 16, CRUSH makes one of two OSDs primary of 2, which shows nothing of clients.
ceph osd pool create rbd 64 64
rbd pool init rbd
until ceph pg stat | grep -q '64 active+clean\|65 active+clean'; do sleep 0.5; done
rm -r "$work"
