# shellcheck shell=sh
# What a client's kernel lacks for block devices of RBD images.

# $1 is the module, $2 a path that is there with it, $3 what it brings, $4 what else there is to
# take. Prints what is lacking, or ok.
needs_module() {
    $SUDO modprobe -q "$1" 2> /dev/null || :
    if [ -e "$2" ]; then echo ok
    else echo "its kernel, $(uname -r), has no $3 (module $1); take another $4"; fi
}
