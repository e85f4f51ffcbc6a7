#!/bin/sh
# Runs a command where nothing that upstream CBT does to a machine reaches this one: it kills by
# name, and replaces what is in /etc/ceph. $1 is a directory of the caller's own.
[ "$1" != inside ] || {
    set -e
    mkdir -p /run/ceph
    for path in /etc/ceph /run /var/lib/ceph /var/log/ceph; do
        [ ! -d "$path" ] || mount -t tmpfs tmpfs "$path"
    done
    mkdir -p /run/ceph
    mount --bind "$2/core_pattern" /proc/sys/kernel/core_pattern
    mount -o remount,bind,ro /sys
    # What upstream's `ulimit -c unlimited` needs of sudo, where it is there.
    [ ! -d /etc/sudoers.d ] || {
        mount -t tmpfs -o mode=750 tmpfs /etc/sudoers.d
        echo 'Defaults rlimit_core=user' > /etc/sudoers.d/core
        chmod 440 /etc/sudoers.d/core
        echo 'Set disable_coredump false' > "$2/sudo.conf"
        mount --bind "$2/sudo.conf" /etc/sudo.conf
    }
    hostname localhost
    ip link set lo up
    shift 2
    exec "$@"
}
touch "$1/core_pattern"
# Whatever ends this process, nothing of the namespaces outlives it.
exec setpriv --pdeathsig KILL unshare --mount --uts --net --ipc --pid --fork --mount-proc \
    --kill-child "${0%/*}/let_go.sh" "$0" inside "$@"
