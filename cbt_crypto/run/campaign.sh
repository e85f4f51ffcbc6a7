# shellcheck shell=sh

# What is wrong with the daemons of the run files in $1, or the disk with less than $2 KiB. A process
# id may be another's by now, so the program's name is looked at too.
diagnose() {
    cd "$1" 2>/dev/null || exit 0
    for file in *.pid; do
        [ -s "$file" ] || continue
        case $(cat "/proc/$(cat "$file")/comm" 2>/dev/null) in
            ceph-*) ;;
            *) echo "${file%.pid} has ended" ;;
        esac
    done
    free=$(df -Pk . | awk 'NR == 2 { print $4 }')
    [ "$free" -ge "$2" ] || echo 'the disk of tmp_dir is full'
}
