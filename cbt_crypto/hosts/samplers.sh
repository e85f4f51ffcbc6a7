# shellcheck shell=sh

# The name of each zone in $1 that can be read; maybe none. intel-rapl-mmio:* is the same energy,
# counted again; the pattern does not match it.
zones() {
    for zone in "$1"/intel-rapl:*; do
        { read -r _ < "$zone/energy_uj" && read -r _ < "$zone/max_energy_range_uj"; } 2>/dev/null &&
            cat "$zone/name" || :
    done
}

# Waits for what `end_session` left in `$pid`, $2 seconds at most, and removes the record in $1.
fold_stacks() {
    n=0
    # A number may be another's by the next second.
    while pid=$(printf '/proc/%s/status\n' $pid | with_mark "$CBT_CRYPTO_MARK")
        [ -n "$pid" ] && [ $n -lt "$2" ]
    do n=$((n + 1)); sleep 1; done
    [ -z "$pid" ] || $SUDO kill -KILL $pid 2>/dev/null || :
    $SUDO rm -f "$1/perf.data" "$1/perf.data.said"
    $SUDO rmdir "$1" 2>/dev/null || :
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
