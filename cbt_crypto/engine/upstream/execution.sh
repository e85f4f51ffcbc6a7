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
