#!/bin/sh
# Runs a command ($2 and on) in a mount namespace that was just made, without the file systems that
# campaigns have mounted. It would keep them, so that a campaign could not free its drive before an
# image is built. $1 is the file that marks a directory of ours.
# Without root such mounts cannot be let go.
marker=$1
shift
while read -r _ place _; do
    [ ! -e "${place%/*}/$marker" ] || umount -l "$place" 2> /dev/null || :
done < /proc/mounts
exec "$@"
