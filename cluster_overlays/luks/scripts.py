"""Shell text that makes, changes and removes dm-crypt mappings with LUKS headers.

Everything runs in one shell as root, so that a key exists in that shell's files alone: in a tmpfs,
readable by root only, from before the header is written until after it is destroyed. Command
lines carry the path of a key, never a key. The admin key of a drive that encrypts by itself lies
beside the header's, as NAME.opal, until the drive is as the factory made it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cbt_crypto.cluster_overlays.luks import opal
from cbt_crypto.cluster_overlays.luks.mapping import CryptMapping

#: Options that change on an open mapping, by dm-crypt's name, with cryptsetup's.
LIVE = {
    "allow_discards": "--allow-discards",
    "same_cpu_crypt": "--perf-same_cpu_crypt",
    "submit_from_crypt_cpus": "--perf-submit_from_crypt_cpus",
    "no_read_workqueue": "--perf-no_read_workqueue",
    "no_write_workqueue": "--perf-no_write_workqueue",
    "high_priority": "--perf-high_priority",
}

_KEYS = """
umask 077
for keys in /run /dev/shm; do
    case $(stat -f -c %T $keys 2>/dev/null) in tmpfs|ramfs) break ;; esac
    keys=
done
if [ -z "$keys" ]; then
    echo "neither /run nor /dev/shm is a tmpfs, so there is no place for keys" >&2
    exit 1
fi
keys=$keys/cbt-crypto
"""

# What only flash gets; device-mapper hands on what the devices below say of themselves.
_MORE = """
more() {
    [ -z "$2" ] || [ "$(lsblk -dnro ROTA "$1" | tr -d ' ')" != 0 ] || echo "$2"
}
"""

_MAKE = """
mkdir -p "$keys"
[ -O "$keys" ] || { echo "$keys is not root's" >&2; exit 1; }
chmod 700 "$keys"
# Text without a newline, as one ends it where it is read; drives need not take more than 32 bytes.
# One that is there already may be the drive's.
admin_key() {
    [ -s "$1" ] || head -c 16 /dev/urandom | od -An -v -tx1 | tr -d ' \\n' > "$1"
}
make() {
    head -c 64 /dev/urandom > "$keys/$1"
    admin=/dev/null
    [ -z "$OPAL" ] || { admin=$keys/$1.opal; admin_key "$admin"; }
    cryptsetup luksFormat --batch-mode $FORMAT --label "$1" --key-file "$keys/$1" "$2" < "$admin"
    cryptsetup open --type luks $FLAGS $(more "$2" "$FLASH") --key-file "$keys/$1" "$2" "$1"
}
"""

# The flags in force are compared first: a refresh suspends the device for a moment.
_REFRESH = """
in_force() {
    dmsetup table "$1" | tr ' ' '\\n' | grep -xE "$KNOWN" | sort | tr '\\n' ' '
}
refresh() {
    wanted=$(printf '%s\\n' $WANTED $(more "$2" "$FLASH_WANTED") | grep . | sort | tr '\\n' ' ')
    [ "$(in_force "$1")" = "$wanted" ] ||
        cryptsetup refresh $FLAGS $(more "$2" "$FLASH") --key-file "$keys/$1" "$1"
}
"""

# Without its range a drive would still be ours, and nobody else could have it encrypt without the
# PSID on its label. So it is reset as a whole, which preflight has made sure is nobody else's.
_RESET = """
reset() {
    cryptsetup luksErase --batch-mode --key-file "$2" "$1" >/dev/null 2>&1 || :
    if ! python3 -I -c "$DRIVES" revert "$1" "$2"; then
        echo "the OPAL admin key of $1 is kept in $2; without it, use the PSID on its label" >&2
        return 1
    fi
    wipefs -q -a "$1"
    rm -f "$2"
}
"""

# A device is erased only when the header on it carries our label: another's data is never touched.
_REMOVE = """
remove() {
    ends=$(( $(date +%s) + 20 ))
    while [ -e "/dev/mapper/$1" ]; do
        said=$(cryptsetup close "$1" 2>&1) && break
        if [ "$(date +%s)" -ge $ends ]; then
            echo "cannot close $1: $(echo "$said" | tail -n 1)" >&2
            return 1
        fi
        sleep 0.1
    done
    for admin in "/run/cbt-crypto/$1.opal" "/dev/shm/cbt-crypto/$1.opal"; do
        [ ! -e "$admin" ] || reset "$2" "$admin" || return 1
    done
    if [ -b "$2" ] && [ "$(blkid -p -s LABEL -o value "$2" 2>/dev/null)" = "$1" ]; then
        cryptsetup luksErase --batch-mode "$2"
        wipefs -q -a "$2"
    fi
    rm -f "/run/cbt-crypto/$1" "/dev/shm/cbt-crypto/$1"
}
"""

_NO_KEYS_LEFT = "rmdir /run/cbt-crypto /dev/shm/cbt-crypto 2>/dev/null || :"


@dataclass(frozen=True)
class Flags:
    """Flags of open mappings, by dm-crypt's names; `on_flash` are those that only flash gets."""

    everywhere: tuple[str, ...] = ()
    on_flash: tuple[str, ...] = ()


def make(
    mappings: Sequence[CryptMapping], formatting: Iterable[str], flags: Flags, hw_opal: bool = False
) -> str:
    """Keys, headers and open mappings; `formatting` are cryptsetup's options."""
    settings = _settings(
        FORMAT=formatting,
        FLAGS=map(_option, flags.everywhere),
        FLASH=map(_option, flags.on_flash),
        OPAL=["yes"] if hw_opal else [],
    )
    return _as_root(settings + _KEYS + _MORE + _MAKE + _each("make", mappings))


def refresh(mappings: Sequence[CryptMapping], flags: Flags) -> str:
    """Open mappings with other flags."""
    settings = _settings(
        FLAGS=map(_option, flags.everywhere),
        FLASH=map(_option, flags.on_flash),
        WANTED=flags.everywhere,
        FLASH_WANTED=flags.on_flash,
        KNOWN=["|".join(LIVE)],
    )
    return _as_root(settings + _KEYS + _MORE + _REFRESH + _each("refresh", mappings))


def remove(mappings: Sequence[CryptMapping]) -> str:
    """Close the mapping, erase its header and destroy its key; what is not there is no error."""
    settings = _settings(DRIVES=[opal.source()])
    return _as_root(settings + _RESET + _REMOVE + _each("remove", mappings) + _NO_KEYS_LEFT)


def _option(flag: str) -> str:
    return LIVE[flag]


def _settings(**options: Iterable[str]) -> str:
    return "".join(f"{name}={shlex.quote(' '.join(words))}\n" for name, words in options.items())


def _each(function: str, mappings: Sequence[CryptMapping]) -> str:
    """All at once; fails when one of them fails."""
    calls = "".join(
        f'{function} {shlex.quote(mapping.name)} {shlex.quote(mapping.device)} & pids="$pids $!"\n'
        for mapping in mappings
    )
    return (
        f"pids=\n{calls}failed=0\n"
        'for pid in $pids; do wait "$pid" || failed=1; done\n'
        "[ $failed = 0 ]\n"
    )


def _as_root(text: str) -> str:
    return f"$SUDO sh -euc {shlex.quote(text)}"
