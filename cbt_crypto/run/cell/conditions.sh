# shellcheck shell=sh
# $1 is the file with the number of the neighbours' session, whose members stress-ng's workers are.
# Prints JSON. Of a stat, what stands behind the name: that may hold any byte, line breaks too, but
# is too short for all the words that a stat has.
neighbours_time() {
    now=$(date +%s.%N) hz=$(getconf CLK_TCK) session=$(cat "$1")
    $SUDO cat /proc/[0-9]*/stat 2> /dev/null | LC_ALL=C sed 's/.*) //' |
        LC_ALL=C awk -v now="$now" -v hz="$hz" -v session="$session" '
            NF > 20 && $4 == session && $1 != "Z" { ticks += $12 + $13; found++ }
            END { printf "{\"cpu_s\": %.2f, \"processes\": %d, \"time\": %s}\n", ticks / hz, found, now }'
}
