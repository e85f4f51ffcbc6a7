# shellcheck shell=sh
# What a client lacks for a driver of CBT's endpoints, or ok.

has_fuse() {
    if [ ! -c /dev/fuse ]; then
        echo 'it has no /dev/fuse; load the module fuse, or take another driver'
    else echo ok; fi
}

has_cephfs() {
    $SUDO modprobe -q ceph 2> /dev/null || :
    if ! grep -qw ceph /proc/filesystems; then
        echo "its kernel, $(uname -r), has no CephFS (module ceph); take the driver cephfs-fuse"
    else echo ok; fi
}
