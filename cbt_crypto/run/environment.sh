#!/bin/sh
# Prints one fact of a host a line. It is sent to every host of a campaign.
say() { printf '%s\t%s\n' "$1" "$(printf '%s' "$2" | tr '\n\t' '  ')"; }
version() { command -v "$1" >/dev/null && say "version.$1" "$("$@" 2>&1 | head -n 1)" || :; }
say kernel "$(uname -r)"
say os "$(. /etc/os-release 2>/dev/null && printf '%s' "$PRETTY_NAME")"
say virtualization "$(systemd-detect-virt 2>/dev/null || :)"
LC_ALL=C lscpu 2>/dev/null | sed -n 's/^\([A-Z][^:]*\): */lscpu.\1\t/p'
say smt "$(cat /sys/devices/system/cpu/smt/control 2>/dev/null || :)"
say governor "$(cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor 2>/dev/null | sort -u)"
say command_line "$(cat /proc/cmdline)"
say cstates "$(for state in /sys/devices/system/cpu/cpu0/cpuidle/state*; do
    [ "$(cat "$state/disable" 2>/dev/null)" != 0 ] || cat "$state/name"
done)"
say aes "$(grep -qw aes /proc/cpuinfo && echo yes || echo no)"
say vaes "$(grep -qw vaes /proc/cpuinfo && echo yes || echo no)"
for node in /sys/devices/system/node/node[0-9]*; do
    [ -r "$node/distance" ] || continue
    memory=$(awk '/MemTotal/ { printf "%.0f GiB", $4 / 2^20 }' "$node/meminfo")
    say "node.${node##*/node}" "CPUs $(cat "$node/cpulist"), $memory, \
distances $(cat "$node/distance")"
done
# Those that change what a byte on the wire costs.
offloads='(rx|tx)-checksumming|rx-gro-hw|(tcp-segmentation|generic-receive|large-receive)-offload'
offloads="$offloads|(hw-tc|esp-hw|macsec-hw|tls-hw-tx|tls-hw-rx)-offload"
for card in /sys/class/net/*/device; do
    [ -e "$card" ] || continue
    name=${card%/device}; name=${name##*/}
    say "network.$name.driver" "$(basename "$(readlink -f "$card/driver")")"
    say "network.$name.speed" "$(cat "${card%/device}/speed" 2>/dev/null || :)"
    say "network.$name.numa" "$(cat "$card/numa_node" 2>/dev/null || :)"
    say "network.$name.mtu" "$(cat "${card%/device}/mtu" 2>/dev/null || :)"
    say "network.$name.firmware" "$(ethtool -i "$name" 2>/dev/null |
        sed -n 's/^firmware-version: *//p')"
    say "network.$name.offloads" "$(ethtool -k "$name" 2>/dev/null |
        sed -nE "s/^($offloads): on.*/\1/p")"
done
# What OSDs encrypt and code with, by the files that the first of them has mapped.
osd=$(pgrep -x ceph-osd | head -n 1)
libraries=$([ -z "$osd" ] || ${SUDO-} cat "/proc/$osd/maps" 2>/dev/null | sed -n \
    's/.* \(\/[^ ]*\(libcrypto[.]so\|isal\|libec_\|qat\)[^ ]*\)$/\1/p' | sort -u)
say libraries "$(for library in $libraries; do basename "$library"; done)"
crypto=$(printf '%s\n' "$libraries" | grep 'libcrypto[.]so' | head -n 1)
say openssl "$([ -z "$crypto" ] || ${SUDO-} cat "/proc/$osd/root$crypto" 2>/dev/null |
    grep -aom 1 'OpenSSL [0-9][.0-9a-z]* [0-9][0-9a-zA-Z ]*[0-9]' | head -n 1)"
say memory_kb "$(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo)"
say load "$(cut -d' ' -f1 /proc/loadavg)"
say tuned "$(command -v tuned-adm >/dev/null && tuned-adm active 2>/dev/null | sed 's/.*: //' || :)"
for file in /sys/devices/system/cpu/vulnerabilities/*; do
    [ -r "$file" ] && say "mitigation.$(basename "$file")" "$(cat "$file")"
done
# Some of these are Python or Perl programs that take half a second to start.
for program in ceph fio cryptsetup collectl perf; do version $program --version & done
wait
