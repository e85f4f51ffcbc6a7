# shellcheck shell=sh disable=SC2046
# Campaigns on one host differ by tmp_dir, which is in the mark of all they start. Nodes of labs share
# a kernel and its cgroups, and may have the same name in each of them: what tells them apart is
# their network namespace. cpuset.py and cpuset_on_host.py make the same names.

# $1 is how the name of the cgroup begins; a command follows.
join_clients() {
    base=$1; shift
    campaign=$(printf %s "${CBT_CRYPTO_MARK%@*}" | sha256sum | cut -c1-8)
    own="$base.$campaign.$(stat -Lc %i /proc/self/ns/net)"
    for group in /sys/fs/cgroup/"$own"/clients /sys/fs/cgroup/*/"$own"/clients; do
        [ -d "$group" ] || continue
        echo $$ | $SUDO tee "$group/cgroup.procs" > /dev/null || exit 1
        # shellcheck disable=SC2093 # it goes no further
        exec "$@"
    done
    echo "there is no cgroup $base/clients" >&2
    exit 1
}

# $1 is the name of the campaign's cgroup.
remove_groups() {
    own=$1.$(stat -Lc %i /proc/self/ns/net)
    for ours in /sys/fs/cgroup/"$own" /sys/fs/cgroup/*/"$own"; do
        [ -d "$ours" ] || continue
        # Ours is root's or the campaign's user's, and has no groups but those that we make.
        strange=$(cd "$ours" && for one in */ */*/; do case $one in
            clients/|osd.[0-9]*/|'*/'|'*/*/') ;; *) echo "$one" ;; esac; done)
        owner=$(stat -c %u "$ours")
        if [ -n "$strange" ] || { [ "$owner" != 0 ] && [ "$owner" != "${CBT_CRYPTO_UID:-0}" ]; }; then
            echo "$ours is not ours alone:" $strange "owner $owner; it is left" >&2
            exit 1
        fi
        for group in "$ours"/*/ "$ours"; do
            [ -d "$group" ] || continue
            # A process that is about to end still fills its group: wait for it a little.
            tries=50
            until $SUDO rmdir "$group" 2>/dev/null; do
                tries=$((tries - 1))
                if [ $tries = 0 ]; then
                    echo "$group is still in use by processes" $(cat "$group/cgroup.procs") >&2
                    exit 1
                fi
                sleep 0.1
            done
        done
    done
}
