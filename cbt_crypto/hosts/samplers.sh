# shellcheck shell=sh

# The name of each zone in $1 that can be read; maybe none. intel-rapl-mmio:* is the same energy,
# counted again; the pattern does not match it.
zones() {
    for zone in "$1"/intel-rapl:*; do
        { read -r _ < "$zone/energy_uj" && read -r _ < "$zone/max_energy_range_uj"; } 2>/dev/null &&
            cat "$zone/name" || :
    done
}

# $1 is the file with samples, $2 that of the process; `start` is the caller's.
start_once() {
    umask 022
    # Two names of one host meet here, and share one.
    (set -C; : > "$2") 2>/dev/null || return 0
    start
    # Its start would take time from what is measured.
    n=0
    until [ -s "$1" ] || [ $n -ge 200 ] || ! kill -0 $! 2>/dev/null; do
        n=$((n + 1)); sleep 0.05
    done
}
