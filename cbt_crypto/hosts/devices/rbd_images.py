"""RBD images: made and removed on a cluster that stays, mapped and encrypted by clients."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence
from typing import Optional

from cbt_crypto.hosts import directories, rados_client_on_host, shell
from cbt_crypto.hosts.ceph_conf import ADMIN
from cbt_crypto.hosts.site import VolumeEncryption

_KEY = "cbt-crypto.run"

# What could not get its name is somebody else's by that name.
_MAKE = """\
new=$1-$RUN
{{ {rbd} create {options} "$new" && {rbd} image-meta set "$new" $KEY "$RUN" &&
    {rbd} rename "$new" "$1"; }} || {{
    echo "$1 was not made; if the pool has one, remove or rename it" >&2
    {rbd} rm --no-progress "$new" > /dev/null 2>&1
    exit 1
}}"""

# rbd ends with the number of its error: 2 where there is none, 16 while somebody has it open. A
# dead client's watch ends by itself after 30 s.
_REMOVE = """\
remove() {{
    n=0
    until {rbd} rm --no-progress "$1"; do
        case $? in 2) return 0 ;; 16) [ $n -lt 12 ] || return 1 ;; *) return 1 ;; esac
        n=$((n + 1)); sleep 5
    done
}}
made_by=$({rbd} image-meta get "$1" $KEY)
case $? in
    0) [ "$made_by" != "$RUN" ] || remove "$1" || exit 1 ;;
    2) ;;
    *) exit 1 ;;
esac
remove "$1-$RUN\""""

# That it cannot be asked is no sign that there is none.
_PRESENT = """\
said=$({rbd} info "$1" 2>&1 > /dev/null)
case $? in
    0) echo "there $1" ;;
    2) ;;
    *) echo "unknown $1: $(echo "${{said:-no answer}}" | tail -n 1)" ;;
esac"""


_AT_ONCE = 8


def turns(names: Sequence[str]) -> int:
    """How many commands follow one another where there is one for each of them."""
    return -(-len(names) // _AT_ONCE)


def create(names: Sequence[str], options: str, rbd: str, run: str = "") -> str:
    """`rbd create` for each of `pool/image`, a few at a time, marked as of `run`, if any."""
    if not run:
        return _each(f"{rbd} create {options}", names)
    return _each(_shell(_MAKE.format(rbd=rbd, options=options), run), names)


def remove_images(names: Sequence[str], rbd: str, run: str) -> str:
    """Remove those that this run made, whole or not; all others stay. Every one is tried."""
    return _each(_shell(_REMOVE.format(rbd=rbd), run), names) if names else ""


def present(names: Sequence[str], rbd: str) -> str:
    """Print `there NAME` for each that is there, `unknown NAME WHY` for one that cannot be asked"""
    return _each(_shell(_PRESENT.format(rbd=rbd), ""), names) if names else ""


def _shell(text: str, run: str) -> str:
    return f"sh -c {shlex.quote(f'RUN={shlex.quote(run)} KEY={_KEY}{chr(10)}{text}')} sh"


def _each(command: str, names: Sequence[str]) -> str:
    lines = "".join(f"{shlex.quote(name)}\n" for name in names)
    return f"xargs -P {_AT_ONCE} -n 1 {command} <<'VOLUMES'\n{lines}VOLUMES"


#: Seconds after which the kernel gives up on a request, so that nothing waits for ever for OSDs
#: that are gone.
_GIVES_UP_S = 120

# The kernel shows of each mapped image where it is from.
_OURS = """
is_image() {
    # number, fsid, pool, image
    origin=$SYS/bus/rbd/devices/$1
    [ -e "$origin/name" ] || return 1
    [ "$(cat "$origin/cluster_fsid" "$origin/pool" "$origin/name" | tr '\\n' ' ')" = "$2 $3 $4 " ]
}
prove() {
    # the same, or the end
    is_image "$@" || { echo "/dev/rbd$1 is not $3/$4 of the cluster $2" >&2; exit 1; }
}
numbers_of() {
    # fsid, pool, image
    for mapped in "$SYS/bus/rbd/devices/"*; do
        ! is_image "${mapped##*/}" "$@" || echo "${mapped##*/}"
    done
}
"""

# A client of the cluster says what is in force: of somebody else's, the monitors may keep the mode,
# and the file need not have the fsid. A note is whole, or is not there.
_ATTACH = """
ask_cluster() {
    said=$(python3 -I -S -c "$CLIENT" "$ASKED") || :
    read -r fsid mode <<SAID
$said
SAID
    [ -n "$fsid" ] || { echo "nothing is mapped, as the cluster of $CONF does not tell its fsid;\
 is it up, and does $CONF let client.$CLIENT_ID in" >&2; exit 1; }
    case $mode in secure*) mode=secure ;; *) mode=crc ;; esac
}
attach() {
    # pool, image
    detach "$2"
    printf '%s %s %s\\n' "$fsid" "$1" "$2" > "$MAPPED/$2.new"
    mv "$MAPPED/$2.new" "$MAPPED/$2"
    modprobe -q rbd 2> /dev/null || :
    options=noudev,ms_mode=$mode,osd_request_timeout=$GIVES_UP_S
    rbd_of_cluster device map -o "$options" "$1/$2" > /dev/null
    number=$(numbers_of "$fsid" "$1" "$2")
    [ -n "$number" ] || { echo "$1/$2 is mapped, and the kernel does not say where" >&2; exit 1; }
    grep -q "[ ,]ms_mode=$mode[ ,]" "$SYS/bus/rbd/devices/$number/config_info" ||
        { echo "the kernel does not speak ms_mode=$mode for $1/$2; use Linux 5.11" >&2; exit 1; }
    device=/dev/rbd$number
}
format_luks() {
    # pool, image: just mapped
    prove "$number" "$fsid" "$1" "$2"
    said=$(blkid -p "$device" 2>&1) || :
    [ -z "$said" ] || { echo "$1/$2 is not empty: $said" >&2; exit 1; }
    head -c 64 /dev/urandom > "$keys/$PREFIX-$2"
    cryptsetup luksFormat -q $FORMAT --key-file "$keys/$PREFIX-$2" "$device"
}
open_luks() {
    # image
    cryptsetup open --type luks --key-file "$keys/$PREFIX-$1" "$device" "$PREFIX-$1"
    device=/dev/mapper/$PREFIX-$1
}
"""

# udev, and whoever it starts, may have the device open for a moment.
_DETACH = """
again() {
    n=0
    until "$@" 2> /dev/null; do
        [ $n -lt 40 ] || { "$@"; return; }
        n=$((n + 1)); sleep 0.25
    done
}
detach() {
    # image
    rm -f "$MAPPED/$1.device"
    [ -f "$MAPPED/$1" ] || return 0
    # Nothing was mapped behind a note that was never finished.
    read -r of_cluster pool image < "$MAPPED/$1" || image=
    [ -n "$image" ] || { rm -f "$MAPPED/$1"; return 0; }
    for number in $(numbers_of "$of_cluster" "$pool" "$image"); do
        for holder in "$SYS/block/rbd$number/holders/"*; do
            [ -e "$holder" ] || continue
            name=$(cat "$holder/dm/name")
            [ "$name" = "$PREFIX-$image" ] ||
                { echo "/dev/rbd$number carries $name, which is not ours" >&2; return 1; }
            prove "$number" "$of_cluster" "$pool" "$image"
            again cryptsetup close "$name"
        done
        prove "$number" "$of_cluster" "$pool" "$image"
        again rbd device unmap -o noudev "/dev/rbd$number"
    done
    rm -f "$MAPPED/$1"
}
"""


def _folder(tmp_dir: str) -> str:
    return f"{tmp_dir}/mapped"


def path(tmp_dir: str, image: str) -> str:
    """The link to what a process opens, while an image is attached."""
    return f"{_folder(tmp_dir)}/{image}.device"


def mapping_prefix(tmp_dir: str) -> str:
    """How the names of dm-crypt's mappings over images begin; a dash and the image follow."""
    return f"cbt-crypto-{hashlib.sha256(tmp_dir.encode()).hexdigest()[:8]}-client"


def attach(
    images: Sequence[tuple[str, str, Optional[VolumeEncryption]]], tmp_dir: str, conf: str,
    rbd: str, formats: bool = False, client_id: str = ADMIN,
) -> str:  # fmt: skip
    """Map images of (pool, name, encryption), with a link to each at `path`; format new ones."""
    lines = [
        f"mkdir -p {shlex.quote(_folder(tmp_dir))}",
        'umask 077; keys=""; ask_cluster',
    ]
    for pool, name, encryption in images:
        place, image = shlex.quote(pool), shlex.quote(name)
        lines.append(f"attach {place} {image}")
        if encryption is not None:
            lines.append('[ -n "$keys" ] || keys=$(key_directory make)')
            if formats:
                lines.append(f"FORMAT={shlex.quote(' '.join(encryption.formatting))}")
                lines.append(f"format_luks {place} {image}")
            lines.append(f"open_luks {image}")
        lines.append(f'ln -sfn "$device" "$MAPPED"/{image}.device')
    settings = _settings(tmp_dir) + _client(conf, client_id)
    settings += f'rbd_of_cluster() {{ {rbd} "$@"; }}\n'
    text = settings + _OURS + _DETACH + _ATTACH + directories.functions() + "\n".join(lines)
    return _as_root(text)


def detach(images: Sequence[str], tmp_dir: str) -> str:
    """Close and unmap these images of ours; what is not mapped is no error."""
    calls = "\n".join(f"detach {shlex.quote(name)}" for name in images)
    return _as_root(_settings(tmp_dir) + _OURS + _DETACH + calls)


def detach_all(tmp_dir: str) -> str:
    """Close and unmap all that notes in tmp_dir name, by their cluster, and destroy their keys."""
    folder, prefix = shlex.quote(_folder(tmp_dir)), shlex.quote(mapping_prefix(tmp_dir))
    text = f"""\
rm -f "$MAPPED"/*.device "$MAPPED"/*.new
for note in "$MAPPED"/*; do
    [ ! -f "$note" ] || [ -h "$note" ] || detach "${{note##*/}}"
done
rmdir "$MAPPED"
directories=$(key_directory present)
for directory in $directories; do rm -f "$directory"/{prefix}-*; done
[ -z "$directories" ] || rmdir $directories 2> /dev/null || :"""
    inner = _as_root(_settings(tmp_dir) + _OURS + _DETACH + directories.functions() + text)
    return f"[ ! -d {folder} ] || {inner}"


def unmount_below(folder: str) -> str:
    """Unmount what CBT has mounted below a folder where only root can mount, and unmap it."""
    return _as_root(f"""\
tac /proc/mounts | {{ bad=0; while read -r source place _; do
    case $place in {shlex.quote(folder)}/*) ;; *) continue ;; esac
    umount "$place" || {{ bad=1; continue; }}
    case $source in
    /dev/rbd[0-9]*) rbd device unmap "$source" ;;
    /dev/nbd[0-9]*) rbd-nbd unmap "$source" ;;
    esac || bad=1
done; [ $bad = 0 ]; }}""")


def _client(conf: str, client_id: str) -> str:
    asked = {"conf": conf, "user": client_id, "names": ["fsid", "ms_client_mode"]}
    program = shell.program(rados_client_on_host)
    return (
        f"CLIENT=$(cat <<\\CLIENT_PROGRAM\n{program}CLIENT_PROGRAM\n)\n"
        f"CONF={shlex.quote(conf)}\nCLIENT_ID={shlex.quote(client_id)}\n"
        f"ASKED={shlex.quote(json.dumps(asked))}\n"
    )


def _settings(tmp_dir: str) -> str:
    values = {
        "SYS": "/sys",
        "GIVES_UP_S": str(_GIVES_UP_S),
        "MAPPED": _folder(tmp_dir),
        "PREFIX": mapping_prefix(tmp_dir),
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def _as_root(text: str) -> str:
    # What holds keys leaves no core.
    return f"$SUDO sh -euc {shlex.quote('ulimit -c 0' + chr(10) + text)}"
