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
from cbt_crypto.hosts.devices import destroy
from cbt_crypto.hosts.directories import keys

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
keys=$(key_directory make)
"""

# What only flash gets; device-mapper hands on what the devices below say of themselves.
_MORE = """
more() {
    [ -z "$2" ] || [ "$(lsblk -dnro ROTA "$1" | tr -d ' ')" != 0 ] || echo "$2"
}
"""

_MAKE = """
# Text without a newline, as one ends it where it is read; drives need not take more than 32 bytes.
# One that is there already may be the drive's.
admin_key() {
    [ -s "$1" ] || head -c 16 /dev/urandom | od -An -v -tx1 | tr -d ' \\n' > "$1"
}
make() {
    head -c 64 /dev/urandom > "$keys/$1"
    admin=/dev/null
    [ -z "$OPAL" ] || { admin=$keys/$1.opal; admin_key "$admin"; }
    format_luks "$1" "$2" "$admin"
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

# What others put there is not ours, whatever its name.
_KEYS_LEFT = "key_directories=$(key_directory present)\n"
_NO_KEYS_LEFT = '[ -z "$key_directories" ] || rmdir $key_directories 2>/dev/null || :'


@dataclass(frozen=True)
class Flags:
    """Flags of open mappings, by dm-crypt's names; `on_flash` are those that only flash gets."""

    everywhere: tuple[str, ...] = ()
    on_flash: tuple[str, ...] = ()


def make(
    mappings: Sequence[CryptMapping], formatting: Iterable[str], flags: Flags, tmp_dir: str,
    hw_opal: bool = False,
) -> str:  # fmt: skip
    """Keys, headers and open mappings; `formatting` are cryptsetup's options."""
    settings = _settings(
        FORMAT=formatting,
        FLAGS=map(_option, flags.everywhere),
        FLASH=map(_option, flags.on_flash),
        OPAL=["yes"] if hw_opal else [],
    )
    return destroy.luks(tmp_dir, settings + _KEYS + _MORE + _MAKE + _each("make", mappings))


def refresh(mappings: Sequence[CryptMapping], flags: Flags) -> str:
    """Open mappings with other flags."""
    settings = _settings(
        FLAGS=map(_option, flags.everywhere),
        FLASH=map(_option, flags.on_flash),
        WANTED=flags.everywhere,
        FLASH_WANTED=flags.on_flash,
        KNOWN=["|".join(LIVE)],
    )
    text = keys.functions() + _KEYS + _MORE + _REFRESH + _each("refresh", mappings)
    return as_root(settings + text)


def remove(mappings: Sequence[CryptMapping], tmp_dir: str) -> str:
    """Close the mapping, erase its header and destroy its key; what is not there is no error."""
    settings = _settings(DRIVES=[opal.source()])
    close = _KEYS_LEFT + _each("close_luks", mappings) + _NO_KEYS_LEFT
    return destroy.luks(tmp_dir, settings + close)


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


def as_root(text: str) -> str:
    """The text in one shell of root's."""
    # What holds keys leaves no core.
    return f"$SUDO sh -euc {shlex.quote('ulimit -c 0' + chr(10) + text)}"
