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

# Writes into $1 where the file system with directory $2 is mounted.
note_mount() { stat -c %m "$2" > "$1"; }

# Fails where another file system, or none, is at directory $2 than when `note_mount` wrote $1.
is_mounted() {
    [ -s "$1" ] || return 0
    at=$(cat "$1")
    [ "$(stat -c %m "$2" 2> /dev/null)" = "$at" ] || {
        echo "databases of OSDs are in $2, and $at is not mounted; mount it and run this again" >&2
        exit 1
    }
}
