"""Shell text: commands in sequence or in the background, and Python that runs on the hosts."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Optional

from cbt_crypto.hosts.site import HostScripts


def python(source: str, argument: Any) -> str:
    """Shell text that runs a program with `argument`, as JSON, in its `sys.argv[1]`.

    It runs as root where `$SUDO` allows. python3 is wherever Ceph's commands are; the program can
    count on its standard library, of Python 3.6 on.
    """
    arguments = shlex.quote(json.dumps(argument))
    return f"$SUDO python3 -I - {arguments} <<'PYTHON_PROGRAM'\n{source.strip()}\nPYTHON_PROGRAM\n"


def command(text: str) -> str:
    """A command that the file names, such as `cephadm shell -- ceph`, as words for a shell.

    Raises ValueError where a quotation in it does not end.
    """
    return shlex.join(shlex.split(text))


def joined(parts: Iterable[HostScripts], keep_going: bool = False) -> HostScripts:
    """Scripts for each host one behind the other; see `sequence`."""
    texts: dict[str, list[str]] = {}
    for part in parts:
        for host, text in part.items():
            texts.setdefault(host, []).append(text)
    return {host: sequence(of_host, keep_going) for host, of_host in texts.items()}


def sequence(texts: Sequence[str], keep_going: bool) -> str:
    """One text of several; with `keep_going` each is tried, and it fails when one of them did."""
    if not keep_going:
        # Each overlay's text in a shell of its own: its variables are nobody else's.
        return "\n".join(f"(\n{text}\n)" for text in texts)
    tries = "\n".join(f"(\nset -e\n{text}\n)\n[ $? = 0 ] || bad=1" for text in texts)
    return f"bad=0; set +e\n{tries}\nset -e\n[ $bad = 0 ]"


def start_in_background(command: str, pid_file: str, output: str = "/dev/null") -> str:
    """Start a command in a session of its own; what it prints goes to `output`.

    `command` is shell text; `$!` is its process afterwards.
    """
    return (
        f"setsid {command} </dev/null >{shlex.quote(output)} 2>&1 &\n"
        f"echo $! > {shlex.quote(pid_file)}"
    )


def stop_in_background(pid_file: str) -> str:
    """End it with SIGTERM and wait for up to 5 s; safe to repeat."""
    where = shlex.quote(pid_file)
    return f"""\
# Two names of one host meet here: the other may just have removed it.
pid=$(cat {where} 2>/dev/null) || :
if [ -n "$pid" ]; then
    # A session of its own: the number is the group's too, so sudo's child ends with it.
    $SUDO kill -s TERM -- "-$pid" 2>/dev/null || $SUDO kill -TERM "$pid" 2>/dev/null || :
    # One that has ended has no program any more, also while nobody has asked how it ended.
    n=0
    while [ -e "/proc/$pid/exe" ] && [ $n -lt 100 ]; do sleep 0.05; n=$((n+1)); done
    rm -f {where}
fi"""


def first_sample(directory: str, patience_s: int, while_true: str = ":") -> str:
    """Wait for a line that is no comment in one of collectl's files there.

    At most for so many seconds, and only while the shell text `while_true` is.
    """
    where = shlex.quote(directory)
    return f"""\
sampled() {{
    for file in {where}/*; do
        [ -f "$file" ] && zcat -f "$file" 2>/dev/null | grep -qv '^#' && return 0
    done
    return 1
}}
n=0
# Not too often: programs that look would take an emulated CPU away from the one that starts.
while ! sampled && {while_true} && [ $n -lt {2 * patience_s} ]; do
    sleep 0.5
    n=$((n+1))
done"""


def section(marker: str, text: str) -> str:
    """Shell text whose output is one of the `sections` of a script; it fails as `text` does."""
    return f"echo; echo {marker}\n(\n{text}\n)\n"


def sections(output: str, *markers: str) -> Iterator[tuple[str, str]]:
    """(what stands on a line that begins with a marker, the stripped lines up to the next).

    A marker counts as a whole word; what comes before the first is nobody's.
    """
    name: Optional[str] = None
    lines: list[str] = []
    for line in output.split("\n"):
        if line.split(" ", 1)[0].rstrip() in markers:
            if name is not None:
                yield name, "\n".join(lines).strip()
            name, lines = line.rstrip(), []
        else:
            lines.append(line)
    if name is not None:
        yield name, "\n".join(lines).strip()
