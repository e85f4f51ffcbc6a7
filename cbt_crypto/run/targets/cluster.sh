# shellcheck shell=sh
# $1 is ceph-mon or ceph-osd.
has_ec_optimizations() {
    release=$("$1" --version | sed -n 's/^ceph version \([0-9]*\).*/\1/p')
    if [ "${release:-0}" -ge 20 ]; then echo ok
    else echo "allow_ec_optimizations needs Ceph 20 and this is ${release:-none}; leave it out"; fi
}
