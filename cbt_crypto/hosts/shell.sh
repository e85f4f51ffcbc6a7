# shellcheck shell=sh disable=SC2046,SC2154
# Ends what was started on a host, and waits for what samples it.

# Prints those of `$seen` that have a thread which is not at its end. A process loses its
# environment, and with it our mark, before it lets go of files and devices. Another user's may have
# its number by now.
ending() {
    for pid in $seen; do
        ! grep -hs '^State:' /proc/$pid/task/*/status | grep -qv '[ZX] (' ||
            echo /proc/$pid/status | believed "" | cut -d/ -f3
    done
}

all_processes() { printf '%s\n' /proc/[0-9]*/status; }

# Of the files /proc/PID/status on stdin, those of root, of the campaign's user, or of the users
# (numbers) in $1. Anybody may give his processes our mark or any name; of a setuid program its
# caller counts. All as words of one grep would be too many to start it, where a user has 70,000.
believed() {
    real="^Uid:[[:blank:]]+(0$(printf '|%s' ${CBT_CRYPTO_UID:-$(id -u)} $1))[[:blank:]]"
    ${SUDO-} xargs grep -aslE "$real" /dev/null
}

# Of the files /proc/PID/status on stdin, the processes that are ours and have the mark $1. Others
# are left out first: their user can make whoever reads their environment wait for ever.
with_mark() {
    believed "" | sed 's|status$|environ|' |
        $SUDO xargs grep -lszxF "CBT_CRYPTO_MARK=$1" /dev/null | cut -d/ -f3
}

# What of the session `$session` carries our mark.
members() {
    for pid in $(all_processes | with_mark "$CBT_CRYPTO_MARK"); do
        { read -r stat < "/proc/$pid/stat"; } 2>/dev/null || continue
        set -- ${stat##*) }  # state, parent, group, session
        [ "$4" != "$session" ] || echo "$pid"
    done
}

# All environments are searched only when nothing of what is known is left: that costs more.
members_left() { ending | grep . || members; }

# $1 is the file with the session's number, $2 are signals. Sets `pid` to what did not end.
end_session() {
    # Two names of one host meet here: the other may just have removed it.
    session=$(cat "$1" 2>/dev/null) || :
    pid=
    [ -n "$session" ] || return 0
    seen=""
    for signal in $2; do
        pids=$(members); seen="$seen $pids"
        [ -z "$pids" ] || $SUDO kill -s $signal $pids 2>/dev/null || :
        n=0
        while pids=$(members_left); [ -n "$pids" ] && [ $n -lt 100 ]; do
            # Most have ended by the second look.
            sleep 0.0$((n < 5 ? 1 : 5)); n=$((n+1))
        done
    done
    rm -f "$1"
    pid=$pids
}

# What carries the mark `$mark`, or of that what the pid files $@ name. A campaign in a container may
# have the same mark: what has process numbers of its own is not ours.
marked() {
    if [ $# = 0 ]; then set -- $(all_processes | with_mark "$mark")
    else set -- $(sed -n 's|^[0-9][0-9]*$|/proc/&/status|p' "$@" 2>/dev/null | with_mark "$mark"); fi
    [ $# = 0 ] || set -- $(printf '/proc/%s/ns/pid ' "$@")
    [ $# = 0 ] || $SUDO stat -L -c '%i %n' /proc/self/ns/pid "$@" 2>/dev/null | {
        read -r here _
        while read -r numbers path; do [ "$numbers" != "$here" ] || echo "$path"; done
    } | cut -d/ -f3
}

marked_left() { ending | grep . || marked "$@"; }

now() { cut -d. -f1 /proc/uptime; }

# Where a program does not start, a search finds nothing, which is no proof that nothing is there.
can_search() {
    echo /proc/$$/status | believed "" | cut -d/ -f3 | grep -qx $$ || {
        echo "processes cannot be searched for: xargs, grep or cut does not start" >&2; exit 1
    }
}

# $1 are signals, of which each has $2 seconds; pid files may follow.
end_marked() {
    signals=$1 timeout=$2; shift 2
    mark=$CBT_CRYPTO_MARK; unset CBT_CRYPTO_MARK; SUDO=${BARE_SUDO:-}
    seen=""
    can_search
    for signal in $signals; do
        ends=$(( $(now) + timeout ))
        pids=$(marked "$@"); seen="$seen $pids"
        [ -z "$pids" ] || $SUDO kill -$signal $pids 2>/dev/null || :
        while pids=$(marked_left "$@"); [ -n "$pids" ] && [ "$(now)" -lt $ends ]; do
            # Children that were born meanwhile; SIGTERM would disturb what is shutting down.
            [ $signal != KILL ] || {
                pids=$(marked "$@"); seen="$seen $pids"
                [ -z "$pids" ] || $SUDO kill -KILL $pids 2>/dev/null || :
            }
            sleep 0.1
        done
    done
    [ -z "$pids" ] || { echo "these processes do not end:" $pids >&2; exit 1; }
    can_search
}

# Whether collectl has written a `sample` to a file in $1, or, as $2 says, has made a `file`.
sampled() {
    for file in "$1"/*; do
        [ -f "$file" ] || continue
        [ "$2" = file ] || zcat -f "$file" 2>/dev/null | grep -qv '^#' || continue
        return 0
    done
    return 1
}

# $1 and $3 are those of `sampled`, $2 the tries; `still_runs` is the caller's. Ever more seldom:
# programs that look take an emulated CPU away from the one that starts.
first_sample() {
    n=0
    while ! sampled "$1" "$3" && still_runs && [ $n -lt "$2" ]; do
        case $n in 0|1|2|3) sleep 0.1 ;; *) sleep 0.5 ;; esac
        n=$((n+1))
    done
}
