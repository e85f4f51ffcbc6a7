"""Shell text for the directory that has keys in memory; root's shell runs it."""

from __future__ import annotations

from cbt_crypto.hosts import shell
from cbt_crypto.hosts.directories import keys_on_host


def functions() -> str:
    """Defines `key_directory`, which prints the directory.

    `key_directory make` makes it where it is missing, or ends the script with a sentence;
    `key_directory present` prints each that is there and root's alone, or nothing.
    """
    return (
        f"KEYS=$(cat <<\\KEYS_PROGRAM\n{shell.program(keys_on_host)}KEYS_PROGRAM\n)\n"
        'key_directory() { python3 -I -S -c "$KEYS" "$1"; }\n'
    )
