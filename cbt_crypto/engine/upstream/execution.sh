# shellcheck shell=sh disable=SC2154

# Upstream chooses the OSD's uuid itself; `$device` and `prove` are the caller's.
ours() {
    [ -n "$device" ] || return 0
    uuid=
    for word; do
        [ "$uuid" != next ] || uuid=$word
        [ "$word" != --osd-uuid ] || uuid=next
    done
    prove ready "$device" bluestore > /dev/null && prove share "$device" "$uuid"
}

# Upstream's words for ceph-fuse: the file system.
fuse_namespace() {
    for word; do
        case $word in --client_mds_namespace=*) echo "${word#*=}" ;; esac
    done
}

# Its words for mount.ceph: the monitors, the folder, -o, options that end in the file system.
kernel_namespace() { echo "${4##*mds_namespace=}"; }

# Upstream mounts at once; no server may have taken the file system yet.
is_served() {
    n=0
    until "$base/bin/ceph" -c "$CEPH_CONF" fs get "$fs" -f json 2> /dev/null |
        grep -q '"up:active"'; do
        [ $n -lt 120 ] || { echo "no MDS has become active for $fs in 60 s" >&2; return 1; }
        n=$((n + 1)); sleep 0.5
    done
}

kernel_mode() {
    case $(ceph-conf -c "$CEPH_CONF" -n client.admin --show-config-value ms_client_mode) in
    secure*) echo secure ;;
    *) echo crc ;;
    esac
}
