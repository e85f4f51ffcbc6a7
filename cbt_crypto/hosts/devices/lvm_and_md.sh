# shellcheck shell=sh
# Groups and their volumes; NOTED_GROUPS is the file with a line for each group and its device.

group() {
    echo "$1 $2" >> "$NOTED_GROUPS"
    make_group "$1" "$2"
}

# $1 is the group, $2 the volume, $3 its size, or by how many what is free is divided.
by_size() { lvcreate -q -y -W y -n "$2" -L "$3" "$1" > /dev/null; }
share() { lvcreate -q -y -W y -n "$2" -l $(( $(free "$1") / $3 )) "$1" > /dev/null; }
free() { vgs --noheadings -o vg_free_count "$1"; }

remove_noted() {
    [ -e "$NOTED_GROUPS" ] || exit 0
    left=0
    while read -r group device; do
        # In the background: as a part of `||` it would go on behind a proof that failed.
        remove_group "$group" "$device" < /dev/null &
        wait $! || left=1
    done < "$NOTED_GROUPS"
    [ $left = 0 ] || exit 1
    rm -f "$NOTED_GROUPS"
}

can_make_volumes() {
    PATH=$PATH:/usr/sbin:/sbin
    $SUDO modprobe -q dm-mod 2> /dev/null || :
    if ! command -v vgcreate > /dev/null; then echo "LVM's commands are missing; install lvm2"
    elif ! $SUDO dmsetup targets 2> /dev/null | grep -q '^linear '; then
        echo "its kernel, $(uname -r), has no device-mapper; take another, or a lab of virtual machines"
    else echo ok; fi
}

can_make_arrays() {
    PATH=$PATH:/usr/sbin:/sbin
    command -v mdadm > /dev/null || { echo 'mdadm is missing; install mdadm'; exit 0; }
    $SUDO modprobe -q raid0 2> /dev/null || :
    if [ -e /proc/mdstat ] && grep -q raid0 /proc/mdstat; then echo ok
    else echo "its kernel, $(uname -r), has no MD RAID-0; take another kernel, or a lab's machine"; fi
}
