# shellcheck shell=sh

# $1 is the kind of tunnel, $2 a command that tries to make one; programs that it takes follow. It
# is tried in a network namespace of its own, which goes with it: nothing of the host is touched.
check_tunnel() {
    kind=$1 try=$2; shift 2
    PATH=$PATH:/usr/sbin:/sbin
    for program in ip unshare python3 "$@"; do
        command -v "$program" > /dev/null && continue
        case $program in wg) package=wireguard-tools ;; ip|bridge) package=iproute2 ;;
            unshare) package=util-linux ;; *) package=$program ;; esac
        echo "$program is missing; install $package"; exit 0
    done
    said=$($SUDO unshare -n sh -c "$try" 2>&1) && echo ok ||
        echo "its kernel, $(uname -r), cannot make a $kind tunnel ($(echo "$said" | tail -n 1));" \
            "take another kernel, or a lab of virtual machines"
}
