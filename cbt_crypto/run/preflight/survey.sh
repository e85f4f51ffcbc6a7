# shellcheck shell=sh disable=SC2046,SC2154
# What `check` shows of a host: each function prints one fact.

root_by() {
    if [ "$(id -u)" = 0 ]; then echo root; elif [ -n "$SUDO" ]; then echo yes; else echo none; fi
}

# $1 is a directory, which may not be there yet; in bytes.
room_for() {
    parent=$1
    while [ ! -e "$parent" ]; do parent=$(dirname "$parent"); done
    echo $(( $(df -Pk "$parent" | awk 'NR == 2 { print $4 }') * 1024 ))
}

# Of the interface by which we came; for this machine itself, of the first that has an address.
network() {
    address=$(echo "${SSH_CONNECTION:-}" | cut -d' ' -f3)
    name=$(ip -o -4 addr show scope global | awk -v a="$address" '
        { split($4, parts, "/"); if (first == "") first = $2; if (parts[1] == a) found = $2 }
        END { print found != "" ? found : first }')
    [ -n "$name" ] || exit 0
    echo "$name" "$(cat "/sys/class/net/$name/mtu")" "$(cat "/sys/class/net/$name/speed" 2>/dev/null)"
}

governors() { cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor 2>/dev/null | sort -u; }

# $mark is the campaign's; the survey has it.
load() {
    echo "$(cut -d' ' -f1 /proc/loadavg) $(getconf _NPROCESSORS_ONLN)"
    ours=" $(echo $(all_processes | with_mark "$mark")) "
    for comm in /proc/[0-9]*/comm; do
        read -r name < "$comm" || continue
        case $name in ceph-osd|ceph-mon|fio|etcd) ;; *) continue ;; esac
        pid=${comm#/proc/}
        case $ours in *" ${pid%/comm} "*) ;; *) echo "$name" ;; esac
    done 2>/dev/null
}
