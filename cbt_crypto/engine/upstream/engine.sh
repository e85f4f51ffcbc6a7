# shellcheck shell=sh
# What upstream CBT needs of a host: each function prints ok, or what is lacking.

has_sudo() {
    if ! command -v sudo > /dev/null; then
        echo 'sudo is missing, and upstream CBT runs every command of a deployment with it; install it'
    elif ! sudo -n true 2> /dev/null; then
        echo 'sudo asks for a password; upstream CBT needs it to ask for none'
    else echo ok; fi
}

has_limits() {
    said=$(sudo -n sh -c 'ulimit -n 16384 && ulimit -c unlimited' 2>&1) && { echo ok; exit 0; }
    echo "ulimit fails under sudo ($said), and upstream CBT starts daemons with 16384 open files" \
        "and core files of any size; write 'Defaults rlimit_core=user' into sudoers and" \
        "'Set disable_coredump false' into sudo.conf, or use --cbt embedded"
}
