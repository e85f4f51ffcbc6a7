# shellcheck shell=sh

# $1 is how the names of a session's files begin, $2 what is asked. Ends the script with the answer,
# where there is a session. One that has ended has closed its end of the pipe, so nothing here waits
# for it. The pipe is opened both ways at first, as that waits for nobody.
ask_session() {
    umask 077
    told=
    if [ -p "$1.told" ]; then
        printf %s "$2" > "$1.steps"
        { exec 8< "$1.told"; } 9<> "$1.told"
        echo 1<> "$1.ask"
        read -r told <&8 || told=
        exec 8<&-
    fi
    if [ -n "$told" ]; then
        cat "$1.out"
        cat "$1.err" >&2
        exit "$told"
    fi
}

# $1 is the command for ceph, $2 its ceph.conf; the program comes by stdin, its other arguments
# follow. Python would import what lies where one stands, which may be anybody's.
python_of_ceph() {
    ceph=$(command -v "$1") || { echo 'ceph is missing; install ceph-common' >&2; exit 1; }
    case $2 in /*) conf=$2 ;; *) conf=$PWD/$2 ;; esac
    shift 2
    # The first line of `ceph` names the interpreter whose packages it was installed with.
    python=$(sed -n '1s/^#! *//p' "$ceph")
    (cd / && ${python:-python3} - "$conf" "$@")
}

# Prints a key of cipher $1, where $2 can choose one, and $4 where $3 knows ciphers too.
key_of() {
    kind=
    if [ -n "$1" ] && "$2" --help 2>&1 | grep -q -e --key-type; then
        kind="--key-type $1"
    fi
    # shellcheck disable=SC2086
    "$2" --gen-print-key $kind
    ! "$3" --help 2>&1 | grep -q -e --auth-service-cipher || echo "$4"
}

# Makes the monitors' first maps in the directory $1, with the configuration $2 and the programs
# osdmaptool, $3, and monmaptool, $4. The rest says what monmap has.
make_maps() {
    cd "$1" || exit 1
    conf=$2 of_osds=$3 of_mons=$4
    shift 4
    "$of_mons" --create --clobber "$@" monmap >&2
    "$of_osds" -c "$conf" --clobber --create-from-conf osdmap > log/osdmap.out 2>&1 || {
        cat log/osdmap.out >&2
        exit 1
    }
}
