# shellcheck shell=sh
# What a host is, one fact a line, and its devices.

say() { printf '%s\t%s\n' "$1" "$(printf '%s' "$2" | tr '\n\t' '  ')"; }
version() { command -v "$1" >/dev/null && say "version.$1" "$("$@" 2>&1 | head -n 1)" || :; }

# Is another once the host has started anew, or a program or libcrypto was replaced. Starts none.
installed() {
    cat /proc/sys/kernel/random/boot_id
    for program in ceph ceph-osd fio cryptsetup; do command -v $program || :; done |
        xargs stat -Lc '%n %i %y' /usr/lib*/libcrypto.so* /usr/lib/*/libcrypto.so* 2>/dev/null || :
}

facts() {
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
    # What OSDs encrypt and code with, by the files that the first of them has mapped. In containers
    # the user ceph is 167.
    osd=$(all_processes | believed "167 $(id -u ceph 2>/dev/null)" | sed 's|status$|comm|' |
        xargs grep -aslxF ceph-osd /dev/null | cut -d/ -f3 | head -n 1)
    libraries=$([ -z "$osd" ] || ${SUDO-} cat "/proc/$osd/maps" 2>/dev/null | sed -n \
        's/.* \(\/[^ ]*\(libcrypto[.]so\|isal\|libec_\|qat\)[^ ]*\)$/\1/p' | sort -u)
    say libraries "$(for library in $libraries; do basename "$library"; done)"
    crypto=$(printf '%s\n' "$libraries" | grep 'libcrypto[.]so' | head -n 1)
    # Whoever calls a process of his ceph-osd chooses the file: a pipe, or one without end.
    say openssl "$([ -z "$crypto" ] ||
        timeout 10 ${SUDO-} head -c 32M "/proc/$osd/root$crypto" 2>/dev/null |
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
}

# $1 is a device. A partition's model is that of its disk, and a volume's that of the first disk
# below it. NVMe and SCSI name the firmware's file differently, and their folders of the PCI device.
describe() {
    real=$(readlink -f "$1" || echo "$1")
    block=$(readlink -f "$SYS/class/block/$(basename "$real")" || :)
    for below in "$block"/slaves/*; do
        [ ! -e "$below" ] || { block=$(readlink -f "$below"); break; }
    done
    [ ! -e "$block/partition" ] || block=$(readlink -f "$block/..")
    echo "@device $1"
    for file in device/model device/firmware_rev device/rev queue/rotational queue/write_cache \
        queue/logical_block_size queue/physical_block_size; do
        [ ! -r "$block/$file" ] || echo "$(basename "$file") $(cat "$block/$file")"
    done
    [ ! -e "$block/loop/backing_file" ] || echo "model $FILE"
    for pci in "$block/device/device" "$block/device" "$block"/device/nvme*/device; do
        [ -r "$pci/numa_node" ] || continue
        echo "numa_node $(cat "$pci/numa_node")"
        for which in current max; do
            [ ! -r "$pci/${which}_link_speed" ] || echo "${which}_link" \
                "$(cat "$pci/${which}_link_speed") x$(cat "$pci/${which}_link_width")"
        done
        break
    done
    echo "size_bytes $(lsblk -bdnro SIZE "$real" 2> /dev/null || :)"
    disk=/dev/$(basename "$block")
    for ask in "smartctl -j -i -A" "nvme smart-log -o json"; do
        said=$(${SUDO-} timeout 20 $ask "$disk" 2> /dev/null | tr -d '\n') || :
        case $said in *percent*used* | *'"ata_smart_attributes"'*) echo "smart $said"; break ;; esac
    done
}
