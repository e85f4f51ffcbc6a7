# shellcheck shell=sh
# Databases and logs of OSDs on a second device.

# Prints where the directory $2 of OSD $1 says that they are. $3 is the pid file of an OSD that is
# there already: the directory is that process's own.
links_of() {
    as=
    if [ -n "$3" ]; then
        as=${SUDO-}
        set -- "$1" "/proc/$(cat "$3")/root$2"
        $as test -d "$2" || return 0
    fi
    for part in block.db block.wal; do
        place=$2/$part
        echo "$1 $part" "$($as readlink "$place" || { ! $as test -e "$place" || echo file; })"
    done
}

# Says ok where device $1 has $2 bytes, and what LVM takes, for $3.
room() {
    have=$(${SUDO-} blockdev --getsize64 "$1" 2> /dev/null || echo 0)
    # LVM keeps its own data in the first MiB, and the rest in whole extents of 4 MiB.
    if [ "$have" -ge $(($2 + 5242880)) ]; then
        echo ok
    else
        echo "$1" "has $have bytes for $3; lower db_device.size"
    fi
}

# Writes into $1 where the file system of directory $2 is mounted.
note_mount() {
    stat -L -c %m "$2" > "$1.new"
    # A power cut would leave the name of a file without a word in it.
    sync "$1.new"
    mv "$1.new" "$1"
}

# Fails where the directory $2 is not on the mount that `note_mount` wrote into $1.
is_mounted() {
    [ -e "$1" ] || return 0
    at=$(cat "$1")
    [ "$at" ] || { echo "databases of OSDs are in $2, and a power cut emptied the note of where" \
        "that was mounted; see that it is, and remove $1" >&2; exit 1; }
    now=$(stat -L -c %m "$2" 2> /dev/null) || now=
    [ "$now" != "$at" ] || return 0
    if [ "$at" = / ] || grep -qsF " $at " /proc/mounts; then
        echo "databases of OSDs are in $2, below what is mounted at $now now; unmount that" >&2
    else
        echo "databases of OSDs are in $2, and $at is not mounted; mount it, or, if it is gone" \
            "for good, remove $1" >&2
    fi
    exit 1
}
