# shellcheck shell=sh disable=SC2154
# Asks the watcher, the names of whose files begin with `$watched`. Nothing here waits for one that
# has ended. Its pipes are opened both ways, as that waits for nobody; the answer is then read from
# an end that is closed when the watcher ends, and that is open before it is asked, so that no
# answer is lost.

is_watching() {
    [ -r "$watched.pid" ] && read -r watcher < "$watched.pid" || return 1
    [ -r "/proc/$watcher/stat" ] && read -r stat < "/proc/$watcher/stat" || return 1
    case ${stat##*) } in [ZX]*) return 1 ;; esac
}

ask_watcher() {
    { exec 8< "$watched.told"; } 9<> "$watched.told"
    echo "$1" 1<> "$watched.ask"
    read -r told <&8 || told=
    exec 8<&-
}

python_of_watcher() {
    is_watching || { $SUDO python3 -I -S "$@"; return; }
    cat > "$watched.program"; : > "$watched.out"; : > "$watched.err"
    printf %s "$2" > "$watched.argument"
    ask_watcher run
    [ -n "$told" ] || { $SUDO python3 -I -S "$@" < "$watched.program"; return; }
    cat "$watched.out"
    [ ! -s "$watched.err" ] || cat "$watched.err" >&2
    return "$told"
}

# $1 are twentieths of seconds.
wait_for_look() {
    n=0; until [ -s "$watched.jsonl" ]; do
        is_watching && [ $n -lt "$1" ] || { tail -n 3 "$watched.said" >&2; exit 1; }
        n=$((n + 1)); sleep 0.05
    done
}

# It ends by itself then; what is looked up of a process to be killed would cost more than a wait.
ask_to_end() {
    ! is_watching || ask_watcher end
    n=0; while is_watching && [ $n -lt 24 ]; do sleep 0.0$((n < 5 ? 1 : 5)); n=$((n + 1)); done
    is_watching || rm -f "$watched.pid"
}

# Of each process whose output is in $1, behind a line with $2, the last $3 characters.
last_lines() {
    cd "$1" 2> /dev/null || return 0
    for file in live.*; do
        [ -f "$file" ] || continue
        echo "$2"
        tail -c "$3" "$file" | tr '\r' '\n'
        echo
    done
}
