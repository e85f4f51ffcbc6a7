# shellcheck shell=sh
# Whether a cluster lets its head and clients in. CONF and CLIENT are the caller's, and so are
# `ask`, `present` and `connect`. The head may be a command that enters a container: what `ceph`
# says is all that is known of it.

# $1 are the seconds that `ask` has; pools follow, each with the MiB that it is to take.
check_cluster() {
    limit=$1; shift
    wrong=
    if said=$(ask osd dump 2>&1); then
        room=$(ask df --format json 2> /dev/null | sed 's/{"name"/\n&/g') || room=
        # A cluster that is full stops everybody who writes to it. Each pool is told all the room
        # that its OSDs have, so parts of it add up.
        part=0
        while [ $# != 0 ]; do
            # Of a pool that will be made, nobody knows where: the least that any has.
            left=$(echo "$room" | sed -n "/^{\"name\":\"${1:-.*}\",/s/.*\"max_avail\":\([0-9]*\).*/\1/p" |
                sort -n | head -n 1)
            if [ -n "$1" ] && ! echo "$said" | grep -q "^pool [0-9]* '$1' "; then
                wrong="has no pool $1; make it"
            elif [ "$2" != 0 ] && [ -z "$left" ]; then
                what=${1:+pool $1}
                wrong="does not tell $CLIENT how much room ${what:-any pool} has; ceph df has to"
            elif [ "$2" != 0 ]; then
                part=$((part + 100 * $2 / ((left >> 20) + 1)))
            fi
            shift 2
        done
        [ -n "$wrong" ] || [ "$part" -le 75 ] ||
            wrong="has too little room: volumes take $part % of what ceph df has left for their \
pools, and may take 75 %; lower vol_size"
    else
        case $?:$said in
        124:*) wrong="does not answer within $limit s; is it up, and are these its monitors" ;;
        *'unable to find a keyring on '*)
            keys=${said#*unable to find a keyring on }; keys=${keys%%: *}
            wrong="takes a key, and that of $CLIENT is not in ${keys%,}; put it there" ;;
        *'errno 95'*) wrong="takes a key, and none of $CLIENT is where Ceph looks for it" ;;
        *) wrong="does not let $CLIENT in: $(echo "$said" | tail -n 1)" ;;
        esac
    fi
    [ -z "$wrong" ] || { echo "the cluster of $CONF $wrong"; return 0; }
    there=$(present)
    first=$(echo "$there" | sort | head -n 1)
    case $first in
    '') echo "$said" | sed -n 's/^fsid //p' ;;
    'there '*) echo "image ${first#there } is on the cluster already, and this campaign would \
make it; if a killed run left it, cbt-crypto cleanup of its archive removes it, else remove or \
rename it" ;;
    *) echo "rbd info does not tell whether there is an image ${first#unknown }; fix that" ;;
    esac
}

check_client() {
    said=$(connect 2>&1) || :
    case $said in
    ????????-????-????-????-????????????) echo "$said" ;;
    *) echo "$CLIENT is not let in: $(echo "$said" | tail -n 1)" ;;
    esac
}
