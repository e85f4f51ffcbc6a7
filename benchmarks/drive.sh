# shellcheck shell=sh
# What drives have to have.

# $1 are MiB, $2 is the sentence where the devices that follow have less together.
has_room() {
    wanted=$1 sentence=$2 total=0; shift 2
    for device; do
        bytes=$(lsblk -bdnro SIZE "$device" 2> /dev/null) || bytes=0
        total=$((total + ${bytes:-0}))
    done
    if [ $((total >> 20)) -ge "$wanted" ]; then echo ok; else echo "$sentence"; fi
}
