#!/bin/bash
# Records a new user's first hour on nodes of the lab, from host names to a table:
#
#   docs/record_first_hour.sh docs/first-hour.cast [DIRECTORY [OPTIONS OF lab up]]
#
# Wants cbt-crypto on the PATH. DIRECTORY is where the user works; its archive is kept. The nodes are
# four namespaces, which wants root, unless options say otherwise, such as --kind vm --nodes 3. $ONLY
# says which cells, as options of cbt-crypto run.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cast=$(realpath "$1")
work=$(realpath "${2:-$(mktemp -d)}")
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- --kind namespace --nodes 4 --disks 0
lab=first-hour-$$
trap 'cbt-crypto lab down --name $lab' EXIT
up=$(cbt-crypto lab up "$@" --name $lab)
last=$(($(grep -c '^node[0-9]' <<< "$up") - 1))

# People have the nodes in their ~/.ssh/config; here it is named to ssh.
mkdir -p "$work/bin"
config=$(sed -n 's/^ssh -F \(.*\) node0$/\1/p' <<< "$up")
for program in ssh scp; do
    printf '#!/bin/sh\nexec %s -F %s "$@"\n' "$(command -v $program)" "$config" > "$work/bin/$program"
    chmod +x "$work/bin/$program"
done
export PATH="$work/bin:$PATH"
cd "$work"
only="--only 'sync / Unencrypted / randread' --only 'sync / Secure messenger / randread'"
only="$only --only 'sync / control / randread'"
# Short cells, and one load of them: the recording shows the way, and not the figures.
python3 "$here/record.py" "$cast" \
    "cbt-crypto init --hosts 'node[0-$last]' --time 3" \
    "cbt-crypto check campaign.yaml" \
    "cbt-crypto plan campaign.yaml | tail -n 12" \
    "cbt-crypto run -a archive ${ONLY:-$only} campaign.yaml"
