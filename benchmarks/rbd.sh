# shellcheck shell=sh
# What clients lack for block devices of RBD images.

# $1 is the kernel's module, $2 a path that is there with it, $3 what it brings, $4 what else there
# is to take; then programs. Prints what is lacking, or ok.
needs_block() {
    $SUDO modprobe -q "$1" 2> /dev/null || :
    if [ ! -e "$2" ]; then
        echo "its kernel, $(uname -r), has no $3 (module $1); take another $4"
        return
    fi
    shift 4
    for program; do
        command -v "$program" > /dev/null && continue
        case $program in rbd) package=ceph-common ;; *) package=$program ;; esac
        echo "$program is missing; install $package"
        return
    done
    echo ok
}
