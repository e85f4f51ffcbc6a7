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
    while read -r group device; do
        remove_group "$group" "$device" < /dev/null
    done < "$NOTED_GROUPS"
    rm -f "$NOTED_GROUPS"
}
