#!/bin/sh
# Makes the root file system with debootstrap, where mmdebstrap is missing: a base first, so that
# apt and not debootstrap resolves the rest, which has virtual packages among its dependencies.
#
#   debootstrap.sh SUITE ROOT [MIRROR]
set -eu
root=$2
recipe=$(dirname "$0")

# The lines of a recipe file, without comments.
entries() {
    grep -v -e '^#' -e '^$' "$recipe/$1"
}

echo "I: installing the base"
debootstrap --variant=minbase "$@"
entries excludes.txt | sed 's/^/path-exclude=/' > "$root/etc/dpkg/dpkg.cfg.d/lab"
echo force-unsafe-io >> "$root/etc/dpkg/dpkg.cfg.d/lab"
# No package may start its daemon here.
printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
mount -t proc proc "$root/proc"
# What this machine's apt says of proxies, and of archives that lag behind.
printf '%s' "${APT_OPTIONS:-}" > "$root/etc/apt/apt.conf.d/99mmdebstrap"
chroot "$root" apt-get -q update
echo "I: installing the packages of a node"
# shellcheck disable=SC2046 # one word a package
chroot "$root" apt-get -q -y --no-install-recommends install $(entries packages.txt)
chroot "$root" apt-get clean
umount "$root/proc"
rm -rf "$root/usr/sbin/policy-rc.d" "$root/etc/dpkg/dpkg.cfg.d/lab" "$root"/var/lib/apt/lists/*
sh "$recipe/setup.sh" "$root"
