"""Shell text that makes and removes a campaign's images on a cluster that stays.

There an image says in its metadata which run made it, and is removed by that alone. It gets its
name last: until then it has one with the run in it, which is what a kill may leave.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

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
    """`rbd create` for each of `pool/image`, a few at a time; each says that `run` made it.

    Without a run, on a cluster that is thrown away, they say nothing.
    """
    if not run:
        return _each(f"{rbd} create {options}", names)
    return _each(_shell(_MAKE.format(rbd=rbd, options=options), run), names)


def remove(names: Sequence[str], rbd: str, run: str) -> str:
    """Remove those that this run made, whole or not; all others stay. Every one is tried."""
    return _each(_shell(_REMOVE.format(rbd=rbd), run), names) if names else ""


def present(names: Sequence[str], rbd: str) -> str:
    """Print `there` and its name for each that is there, `unknown` for one that cannot be asked.

    Behind the latter stands what rbd said.
    """
    return _each(_shell(_PRESENT.format(rbd=rbd), ""), names) if names else ""


def _shell(text: str, run: str) -> str:
    return f"sh -c {shlex.quote(f'RUN={shlex.quote(run)} KEY={_KEY}{chr(10)}{text}')} sh"


def _each(command: str, names: Sequence[str]) -> str:
    lines = "".join(f"{shlex.quote(name)}\n" for name in names)
    return f"xargs -P {_AT_ONCE} -n 1 {command} <<'VOLUMES'\n{lines}VOLUMES"
