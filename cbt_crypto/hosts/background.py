"""Shell text for what runs on a host in the background while a cell is measured, and its end."""

from __future__ import annotations

import shlex


def start(command: str, pid_file: str, output: str = "/dev/null") -> str:
    """Start a command in a session of its own; what it prints goes to `output`.

    `command` is shell text; `$!` is its process afterwards.
    """
    return (
        f"setsid {command} </dev/null >{shlex.quote(output)} 2>&1 &\n"
        f"echo $! > {shlex.quote(pid_file)}"
    )


def stop(pid_file: str) -> str:
    """End it with SIGTERM and wait for up to 5 s; safe to repeat."""
    where = shlex.quote(pid_file)
    return f"""\
if [ -e {where} ]; then
    pid=$(cat {where})
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
