# shellcheck shell=sh disable=SC2154
# All that destroys what is on a device. Each function is sent with what calls it, as root. $1 is
# the path of the device unless a comment says otherwise; what is wiped is the device by the
# kernel's own name, which proof has printed.

# Asks the program that runs this script, so that all proofs take one start of Python. Parts that
# run at once take turns: who has read the one line from the pipe may ask.
prove() {
    read -r prove_status <&6
    printf '%s\0' $# "$@" >&8
    read -r prove_status prove_lines <&9 || { echo "what proves has ended" >&2; exit 1; }
    while [ "$prove_lines" -gt 0 ]; do
        IFS= read -r prove_line <&9
        printf '%s\n' "$prove_line"
        prove_lines=$((prove_lines - 1))
    done
    echo >&7
    return "$prove_status"
}

now() { cut -d. -f1 /proc/uptime; }

# Whoever looks at a device may have it alone for a moment: ceph-volume's inventory, `check`, udev.
# The wait is short, because what was proved before it must still hold.
patiently() {
    patience_ends=$(( $(now) + 4 ))
    until patience_said=$("$@" 2>&1); do
        case $patience_said in *[Bb]usy* | *"in use"* | *exclusively*) ;; *) patience_ends=0 ;; esac
        [ "$(now)" -lt $patience_ends ] || { told >&2; return 1; }
        sleep 0.1
    done
    told
}

told() { [ -z "$patience_said" ] || echo "$patience_said"; }

# $2 is the kernel's name. The tag comes first: whenever this ends, what is there can be told.
wipe_node() {
    prove tag "$1" "$2" && patiently wipefs -q -a "$2" || return 1
    dd if=/dev/zero of="$2" bs=4k seek=1 count=1023 conv=fsync,nocreat status=none 2> /dev/null ||
        blank "$2"
}

# A device of less than 4 MiB ends early.
blank() { [ "$(blockdev --getsize64 "$1")" -lt 4194304 ]; }

# $2 is `discard` if that follows.
claim() {
    node=$(prove claim "$@")
    [ -z "$node" ] || wipe_node "$1" "$node"
    prove tag "$1"
}

# Of our own devices alone, and before anything is made on them: a drive that was written to is
# slower than one that knows nothing of its blocks. The tag stays.
discard() {
    node=$(prove where "$1") || return 1
    [ -n "$node" ] || { echo "$1 is not claimed by this run, so it is left alone" >&2; return 1; }
    patiently blkdiscard --offset 4096 "$node"
}

# CBT's kvmrbdfio makes a file system on what it was lent, and mounts it there.
unmount_lent() {
    [ -e "$1" ] && prove is-lent "$1" || return 0
    mounts=$(tac /proc/mounts) || return 1
    while read -r source place rest; do
        case $place in /srv/rbdfio-*-"${1##*/}") ;; *) continue ;; esac
        [ "$source" -ef "$1" ] || continue
        umount "$place" && rmdir "$place" || return 1
        uuid=$(blkid -p -s UUID -o value "$1") ||
            { echo "$1 was unmounted, and blkid cannot tell its uuid" >&2; return 1; }
        prove made "$1" "$uuid" || return 1
    done <<MOUNTS
$mounts
MOUNTS
}

empty() {
    unmount_lent "$1" || return 1
    node=$(prove where "$1") || return 1
    [ -n "$node" ] || return 0
    # A group of ours of which the note is lost: LVM makes it known again when a host starts.
    group=
    [ -z "$(ls "/sys/class/block/${node##*/}/holders")" ] ||
        group=$(pvs --noheadings -o vg_name "$node" 2> /dev/null | tr -d ' ')
    case $group in cbt-crypto-*) remove_group "$group" "$1"; return ;; esac
    wipe_node "$1" "$node" && prove emptied "$1" "$node"
}

empty_all() {
    bad=0
    paths=$(prove all-claimed)
    while read -r path; do
        [ -z "$path" ] || empty "$path" < /dev/null || bad=1
    done <<PATHS
$paths
PATHS
    [ $bad = 0 ]
}

# $1 is the mapping's name, $2 the device below it, $3 what it reads; FORMAT and $keys are the
# caller's.
format_luks() {
    uuid=$(prove ready "$2" luks)
    patiently cryptsetup luksFormat --batch-mode $FORMAT --uuid "$uuid" --label "$1" \
        --key-file "$keys/$1" "$2" < "$3"
    prove made "$2"
}

# $1 is the mapping's name, $2 the device below it; $key_directories is the caller's.
close_luks() {
    ends=$(( $(now) + 20 ))
    while [ -e "/dev/mapper/$1" ]; do
        prove own-mapping "$1" ||
            { echo "/dev/mapper/$1 is not ours; it is left open" >&2; return 1; }
        said=$(cryptsetup close "$1" 2>&1) && break
        if [ "$(now)" -ge $ends ]; then
            echo "cannot close $1: $(echo "$said" | tail -n 1)" >&2
            return 1
        fi
        sleep 0.1
    done
    node=$(prove where "$2") || return 1
    for keys in $key_directories; do
        [ -z "$node" ] || [ ! -f "$keys/$1.opal" ] ||
            reset_opal "$node" "$keys/$1.opal" || return 1
        rm -f "$keys/$1"
    done
    [ -n "$node" ] || return 0
    if [ "$(blkid -p -s TYPE -o value "$node" 2> /dev/null)" = crypto_LUKS ]; then
        cryptsetup luksErase --batch-mode "$node"
    fi
    if prove is-stacked "$2"; then patiently wipefs -q -a "$node"
    else wipe_node "$2" "$node"; prove emptied "$2" "$node"; fi
}

# Without its range a drive would still be ours, and nobody else could have it encrypt without the
# PSID on its label. So it is reset as a whole, which preflight has made sure is nobody else's.
reset_opal() {
    cryptsetup luksErase --batch-mode --key-file "$2" "$1" > /dev/null 2>&1 || :
    if ! python3 -I -S -c "$DRIVES" revert "$1" "$2"; then
        echo "the OPAL admin key of $1 is kept in $2; without it, use the PSID on its label" >&2
        return 1
    fi
    rm -f "$2"
}

# $1 is the group, $2 its device.
make_group() {
    uuid=$(prove ready "$2" lvm)
    patiently pvcreate -q -ff -y --uuid "$uuid" --norestorefile "$2" > /dev/null
    vgcreate -q -y "$1" "$2" > /dev/null
    prove made "$2"
}

# The volumes' users have ended, but udev may still look at one: try again for a while.
remove_group() {
    case $1 in cbt-crypto-*) ;; *) echo "$1 is no group of ours" >&2; return 1 ;; esac
    ends=$(( $(now) + 20 ))
    while vgs "$1" > /dev/null 2>&1; do
        node=$(prove where "$2") || return 1
        [ "$(vgs --noheadings -o pv_name "$1" | tr -d ' ')" = "$node" ] ||
            { echo "the volume group $1 lies not on our device alone" >&2; return 1; }
        said=$(vgremove -q -f -y "$1" 2>&1) && break
        if [ "$(now)" -ge $ends ]; then
            echo "cannot remove $1: $(echo "$said" | tail -n 1)" >&2
            return 1
        fi
        sleep 0.2
    done
    empty "$2"
}

# $1 is the array, $2 its chunk in KiB; its members follow. The link may come a moment after mdadm
# returns: udev makes it where it runs.
make_array() {
    array=$1 chunk=$2; shift 2
    uuid=
    for member; do uuid=$(prove ready "$member" md); done
    modprobe -q raid0 2> /dev/null || :
    for member; do prove share "$member" "$uuid"; done
    patiently mdadm --create "$array" --level=0 --raid-devices=$# --chunk="$chunk" --metadata=1.2 \
        --uuid="$uuid" --run --quiet "$@" 2>&1 | grep -v 'array .* started' || :
    n=0; while [ ! -b "$array" ] && [ $n -lt 50 ]; do sleep 0.1; n=$((n + 1)); done
    [ -b "$array" ] || { echo "mdadm made no $array" >&2; exit 1; }
    for member; do prove made "$member" "$uuid"; done
}

# $1 is the array; its members follow. A stopped array leaves superblocks on its members, where
# these are not mappings that are gone.
stop_array() {
    array=$1; shift
    case $array in
        */cbt-crypto-*) ;;
        *) echo "$array is no array of ours" >&2; return 1 ;;
    esac
    if [ -e "$array" ]; then
        prove stacked "$array" || return 1
        mdadm --stop --quiet "$(readlink -f "$array")"
    fi
    rm -f "$array"
    for member; do empty "$member" || return 1; done
}

# $2 is the label.
make_ext4() {
    uuid=$(prove ready "$1" ext4)
    patiently mkfs.ext4 -q -F -L "$2" -U "$uuid" -E lazy_itable_init=0,lazy_journal_init=0 "$1"
    prove made "$1"
}
make_xfs() {
    uuid=$(prove ready "$1" xfs)
    patiently mkfs.xfs -q -f -L "$2" -m uuid="$uuid" "$1"
    prove made "$1"
}
