# shellcheck shell=sh
# What programs of a host lack: each function prints ok, or that.

# $1 is `ceph`; without one, another requirement says so.
imports_rados() {
    ceph=$(command -v "$1") || { echo ok; exit 0; }
    python=$(sed -n '1s/^#! *//p' "$ceph")
    # It may be `/usr/bin/env python3`.
    # shellcheck disable=SC2086
    if (cd / && ${python:-python3} -c 'import rados') 2> /dev/null; then echo ok
    else echo "Python's rados module is missing; install python3-rados"; fi
}

# $1 is fio, $2 its engine, $3 what there is to do without it.
has_engine() {
    command -v "$1" > /dev/null || { echo ok; exit 0; }
    off=$(cat /proc/sys/kernel/io_uring_disabled 2> /dev/null || echo 0)
    if ! "$1" --enghelp 2>&1 | grep -qw "$2"; then echo "fio has no $2 engine$3"
    elif [ "$2" = io_uring ] && [ "$off" = 2 ]; then
        echo 'io_uring is disabled; set the sysctl kernel.io_uring_disabled to 0'
    else echo ok; fi
}
