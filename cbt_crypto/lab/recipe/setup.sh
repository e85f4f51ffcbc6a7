#!/bin/sh
# Makes a lab node of a freshly installed root file system, whose path is the only argument.
# Runs on the machine that builds the image, as (perhaps only mapped) root.
set -eu
root=$1
recipe=$(dirname "$0")

install -D -m 755 "$recipe/init" "$recipe/disks" -t "$root/usr/lib/cbt-crypto-lab"
# How the machine that builds reaches an archive is nothing to a node.
rm -f "$root/etc/apt/apt.conf.d/99mmdebstrap"
# Nodes are told apart by what their lab gives them; an image has no identity.
rm -f "$root"/etc/ssh/ssh_host_*_key* "$root/etc/hostname"
: > "$root/etc/machine-id"
mkdir -p "$root/srv/disks" "$root/root/.ssh"

cat > "$root/etc/ssh/sshd_config.d/lab.conf" <<'END'
HostKey /etc/ssh/lab_host_key
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
UseDNS no
GSSAPIAuthentication no
PrintMotd no
MaxStartups 500
MaxSessions 500
END
cat > "$root/etc/ssh/ssh_config.d/lab.conf" <<'END'
Host node*
    GSSAPIAuthentication no
    StrictHostKeyChecking yes
    LogLevel ERROR
END
echo ssh > "$root/etc/pdsh/rcmd_default"
