# shellcheck shell=sh disable=SC2154
# RBD images, by $1 as pool/image unless a comment says otherwise. `rbd_of_cluster` is the caller's,
# and so are KEY and RUN, by which an image tells who made it.

# What could not get its name is somebody else's by that name. $2... are the options of its making.
make_image() {
    image=$1 new=$1-$RUN; shift
    { rbd_of_cluster create "$@" "$new" && rbd_of_cluster image-meta set "$new" "$KEY" "$RUN" &&
        rbd_of_cluster rename "$new" "$image"; } || {
        echo "$image was not made; if the pool has one, remove or rename it" >&2
        rbd_of_cluster rm --no-progress "$new" > /dev/null 2>&1
        exit 1
    }
}

# rbd ends with the number of its error: 2 where there is none, 16 while somebody has it open. A
# dead client's watch ends by itself after 30 s.
remove() {
    n=0
    until rbd_of_cluster rm --no-progress "$1"; do
        case $? in 2) return 0 ;; 16) [ $n -lt 12 ] || return 1 ;; *) return 1 ;; esac
        n=$((n + 1)); sleep 5
    done
}

remove_image() {
    made_by=$(rbd_of_cluster image-meta get "$1" "$KEY")
    case $? in
        0) [ "$made_by" != "$RUN" ] || remove "$1" || exit 1 ;;
        2) ;;
        *) exit 1 ;;
    esac
    remove "$1-$RUN"
}

# That it cannot be asked is no sign that there is none.
present_image() {
    said=$(rbd_of_cluster info "$1" 2>&1 > /dev/null)
    case $? in
        0) echo "there $1" ;;
        2) ;;
        *) echo "unknown $1: $(echo "${said:-no answer}" | tail -n 1)" ;;
    esac
}

# The kernel shows of each mapped image where it is from; for rbd-nbd the cookie that only root can
# give, and that stays when rbd-nbd ends. $1 is rbd3 or nbd3, $2 fsid, $3 pool, $4 image.
is_image() {
    case $1 in nbd*)
        [ -e "$SYS/block/$1/backend" ] || return 1
        [ "$(cat "$SYS/block/$1/backend")" = "$(cookie "$2" "$3" "$4")" ]; return ;;
    esac
    origin=$SYS/bus/rbd/devices/${1#rbd}
    [ -e "$origin/name" ] || return 1
    # One of a namespace, or a snapshot, has the same name and is none of ours.
    [ -z "$(cat "$origin/pool_ns" 2> /dev/null)" ] || return 1
    case $(cat "$origin/current_snap" 2> /dev/null) in ''|-) ;; *) return 1 ;; esac
    [ "$(cat "$origin/cluster_fsid" "$origin/pool" "$origin/name" | tr '\n' ' ')" = "$2 $3 $4 " ]
}

# $1 is the fsid, $2 the pool, $3 the image.
cookie() { echo "$PREFIX/$1/$2/$3"; }

# The same, or the end.
prove() {
    is_image "$@" || { echo "/dev/$1 is not $3/$4 of the cluster $2" >&2; exit 1; }
}

# $1 is the fsid, $2 the pool, $3 the image.
blocks_of() {
    for mapped in "$SYS/block/rbd"* "$SYS/block/nbd"*; do
        ! is_image "${mapped##*/}" "$@" || echo "${mapped##*/}"
    done
}

# A client of the cluster says what is in force: of somebody else's, the monitors may keep the mode,
# and the file need not have the fsid.
ask_cluster() {
    said=$(python3 -I -S -c "$CLIENT" "$ASKED") || :
    read -r fsid mode <<SAID
$said
SAID
    [ -n "$fsid" ] || { echo "nothing is mapped, as the cluster of $CONF does not tell its fsid;\
 is it up, and does $CONF let client.$CLIENT_ID in" >&2; exit 1; }
    case $mode in secure*) mode=secure ;; *) mode=crc ;; esac
}

# $1 is the pool, $2 the image. A note is whole, or is not there.
put_note() {
    detach "$2"
    printf '%s %s %s\n' "$fsid" "$1" "$2" > "$MAPPED/$2.new"
    mv "$MAPPED/$2.new" "$MAPPED/$2"
}

# $1 is the pool, $2 the image.
attach() {
    put_note "$1" "$2"
    modprobe -q rbd 2> /dev/null || :
    options=noudev,ms_mode=$mode,osd_request_timeout=$GIVES_UP_S
    rbd_of_cluster device map -o "$options" "$1/$2" > /dev/null
    find_block "$1" "$2"
    grep -q "[ ,]ms_mode=${mode}[ ,]" "$SYS/bus/rbd/devices/${block#rbd}/config_info" ||
        { echo "the kernel does not speak ms_mode=$mode for $1/$2; use Linux 5.11" >&2; exit 1; }
}

# $1 is the pool, $2 the image; $3 may be the key by which librbd decrypts it.
attach_nbd() {
    put_note "$1" "$2"
    modprobe -q nbd 2> /dev/null || :
    options=io-timeout=$GIVES_UP_S
    [ -z "$3" ] || options=$options,encryption-format=luks2,encryption-passphrase-file=$3
    rbd_of_cluster device map -t nbd --cookie "$(cookie "$fsid" "$1" "$2")" -o "$options" \
        "$1/$2" > /dev/null
    n=0
    # rbd says so a moment before the kernel has it.
    until block=$(blocks_of "$fsid" "$1" "$2"); grep -qs '[1-9]' "$SYS/block/$block/size"; do
        [ $n -lt 100 ] || break
        n=$((n + 1)); sleep 0.1
    done
    find_block "$1" "$2"
}

find_block() {
    block=$(blocks_of "$fsid" "$1" "$2")
    [ -n "$block" ] || { echo "$1/$2 is mapped, and the kernel does not say where; rbd-nbd needs\
 Linux 5.14" >&2; exit 1; }
    device=/dev/$block
}

# $1 is the pool, $2 the image, which nobody has mapped; librbd needs no device.
format_librbd() {
    said=$(rbd_of_cluster diff "$1/$2") || exit 1
    [ -z "$said" ] || { echo "$1/$2 is not empty: it has objects" >&2; exit 1; }
    head -c 64 /dev/urandom > "$keys/$PREFIX-$2"
    rbd_of_cluster encryption format $FORMAT "$1/$2" luks2 "$keys/$PREFIX-$2"
}

# $1 is the pool, $2 the image that was just mapped.
format_luks() {
    is_new "$1" "$2"
    head -c 64 /dev/urandom > "$keys/$PREFIX-$2"
    cryptsetup luksFormat -q $FORMAT --key-file "$keys/$PREFIX-$2" "$device"
}

# The end, unless the image that was just mapped is $1/$2, and is empty.
is_new() {
    prove "$block" "$fsid" "$1" "$2"
    said=$(blkid -p "$device" 2>&1) || :
    [ -z "$said" ] || { echo "$1/$2 is not empty: $said" >&2; exit 1; }
}

# $1 is the image.
open_luks() {
    cryptsetup open --type luks --key-file "$keys/$PREFIX-$1" "$device" "$PREFIX-$1"
    device=/dev/mapper/$PREFIX-$1
}

# $1 is the pool, $2 the image that was just mapped, $3 the file system. All is written at once, so
# that nothing of it is left for when it is measured; a new image has nothing to be discarded.
make_files() {
    case $3 in
    ext4)
        is_new "$1" "$2"
        mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$device"
        ;;
    xfs)
        is_new "$1" "$2"
        mkfs.xfs -q -K "$device"
        ;;
    esac
}

# $1 is the image that was just mapped, $2 the file system in it.
mount_files() {
    mkdir -p "$MOUNTS/$1"
    mount -t "$2" "$device" "$MOUNTS/$1"
}

# $1 is the pool, $2 the image that was just mapped, $3 the folder, $4 KiB to read ahead.
mount_new() {
    make_files "$1" "$2" xfs
    echo "$4" > "$SYS/block/$block/queue/read_ahead_kb"
    mkdir -p "$3"
    mount -t xfs -o noatime,inode64 "$device" "$3"
}

# udev, and whoever it starts, may have the device open for a moment.
again() {
    n=0
    until "$@" 2> /dev/null; do
        [ $n -lt 40 ] || { "$@"; return; }
        n=$((n + 1)); sleep 0.25
    done
}

# $1 is the image.
detach() {
    rm -f "$MAPPED/$1.device"
    [ -f "$MAPPED/$1" ] || return 0
    # Nothing was mapped behind a note that was never finished.
    read -r of_cluster pool image < "$MAPPED/$1" || image=
    [ -n "$image" ] || { rm -f "$MAPPED/$1"; return 0; }
    ! mountpoint -q "$MOUNTS/$image" || again umount "$MOUNTS/$image"
    for block in $(blocks_of "$of_cluster" "$pool" "$image"); do
        for holder in "$SYS/block/$block/holders/"*; do
            [ -e "$holder" ] || continue
            name=$(cat "$holder/dm/name")
            [ "$name" = "$PREFIX-$image" ] ||
                { echo "/dev/$block carries $name, which is not ours" >&2; return 1; }
            prove "$block" "$of_cluster" "$pool" "$image"
            again cryptsetup close "$name"
        done
        case $block in nbd*) how="-t nbd" ;; *) how="-o noudev" ;; esac
        prove "$block" "$of_cluster" "$pool" "$image"
        again rbd device unmap $how "/dev/$block"
    done
    rm -f "$MAPPED/$1"
}

detach_all() {
    rm -f "$MAPPED"/*.device "$MAPPED"/*.new
    for note in "$MAPPED"/*; do
        [ ! -f "$note" ] || [ -h "$note" ] || detach "${note##*/}"
    done
    rmdir "$MAPPED"
    directories=$(key_directory present)
    for directory in $directories; do rm -f "$directory/$PREFIX"-*; done
    [ -z "$directories" ] || rmdir $directories 2> /dev/null || :
}

# Ends what carries our mark and uses the mount $1: a client that outlived its campaign.
end_users() {
    # shellcheck disable=SC2034  # what `marked`, of hosts/shell.sh, asks for
    mark=${CBT_CRYPTO_MARK:-none} SUDO=
    for pid in $(marked); do
        used=$(find "/proc/$pid/cwd" "/proc/$pid/fd" -lname "$1*" 2> /dev/null) || :
        [ -z "$used" ] || kill -KILL "$pid"
    done
}

# $1 is the folder.
unmount_below() {
    tac /proc/mounts | { bad=0; while read -r source place _; do
        case $place in "$1"/*) ;; *) continue ;; esac
        umount "$place" 2> /dev/null || { end_users "$place"; again umount "$place"; } ||
            { bad=1; continue; }
        case $source in
        /dev/rbd[0-9]*) again rbd device unmap "$source" ;;
        /dev/nbd[0-9]*) rbd-nbd unmap "$source" ;;
        esac || bad=1
    done; [ $bad = 0 ]; }
}
