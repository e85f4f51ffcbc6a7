#!/bin/sh
# Makes a cluster as Rook lays one out, for the host to see: its daemons are in a container with its
# own files, processes and name, their sockets and data below /var/lib/rook, and `ceph` is only
# inside. /usr/local/bin/kubectl enters it, in place of Kubernetes'; no sshd is there.
#
#   rook_cluster.sh STOCK_CLUSTER_SH [OPTION = VALUE ...]
set -eu
mkdir -p /var/lib/rook/exporter /var/lib/rook/rook-ceph /etc/ceph /var/lib/ceph /run/ceph
[ "$1" != inside ] || {
    shift
    hostname rook-ceph-pod
    mount -t tmpfs tmpfs /etc/ceph
    mount --bind /var/lib/rook/exporter /run/ceph
    mount --bind /var/lib/rook/rook-ceph /var/lib/ceph
    sh "$@"
    touch /var/lib/rook/is-up
    exec sleep infinity
}
# What Ceph calls the host of a daemon in a pod, as Rook tells it.
NODE_NAME=$(hostname)
export NODE_NAME POD_NAME=rook-ceph-pod POD_NAMESPACE=rook-ceph
setsid unshare --mount --uts --pid --fork --mount-proc sh "$0" inside "$@" \
    < /dev/null > /var/lib/rook/log 2>&1 &
pod=$!
until [ -e /var/lib/rook/is-up ]; do
    kill -0 $pod 2>/dev/null || { cat /var/lib/rook/log >&2; exit 1; }
    sleep 1
done
inside=$(cat /proc/$pod/task/$pod/children)
# Clients outside have a file and a key by hand.
cp /proc/${inside% }/root/etc/ceph/ceph.c* /etc/ceph/
cat > /usr/local/bin/kubectl <<END
#!/bin/sh
[ "\$1 \$2 \$3 \$4 \$5" = "-n rook-ceph exec deploy/rook-ceph-tools --" ] || exit 2
shift 5
echo "\$@" >> /var/lib/rook/asked
exec nsenter --target ${inside% } --mount --uts --pid -- "\$@" < /dev/null
END
chmod +x /usr/local/bin/kubectl
# Whoever calls these on the host has missed the container.
printf '#!/bin/sh\necho "$0 is not on this host" >&2\nexit 127\n' > /var/lib/rook/missing
chmod +x /var/lib/rook/missing
for program in ceph rbd; do mount --bind /var/lib/rook/missing "$(command -v $program)"; done
