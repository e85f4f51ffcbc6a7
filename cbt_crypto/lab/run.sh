# shellcheck shell=sh
# On the head node of a lab; $1 is the campaign's directory there.

# Ends the campaign of a `lab run` that was killed, as Ctrl-C would have, and prints the archive of
# the other machine whose results are still in $2, if there are any.
end_and_tell() {
    pid=$(cat "$1/pid" 2> /dev/null || echo none)
    if grep -qs cbt.py "/proc/$pid/cmdline"; then
        kill -INT "$pid"
        while [ -e "/proc/$pid" ]; do sleep 0.2; done
    fi
    [ ! -e "$2/results" ] || [ ! -e "$1/origin" ] || cat "$1/origin"
}

# Its process may be on its way.
interrupt() {
    n=0; until [ -s "$1/pid" ] || [ $n = 50 ]; do n=$((n + 1)); sleep 0.2; done
    kill -INT "$(cat "$1/pid")" || :
}
