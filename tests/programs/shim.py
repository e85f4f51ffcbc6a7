"""Stands in for pdsh, pdcp, rpdcp, scp and pkill, by the name it is called by.

Notes how it was called in $SHIM_LOG, and does here what was to be done on the hosts.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path


def note(program: str, arguments: list[str]) -> None:
    with open(os.environ["SHIM_LOG"], "a", encoding="utf-8") as file:
        file.write("\x1f".join((program, *arguments)) + "\x1e")


def split(arguments: list[str], with_value: str) -> tuple[dict[str, str], list[str]]:
    """Leading options by their names, and the rest."""
    options: dict[str, str] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        word = rest.pop(0)
        name, value = word[:2], word[2:]
        options[name] = value or (rest.pop(0) if name[1] in with_value else "")
    return options, rest


def pdsh(arguments: list[str]) -> int:
    options, command = split(arguments, "Rfwl")
    if options["-R"] == "ssh":
        # Upstream's way. ssh hands the words to a shell there.
        command = ["sh", "-c", " ".join(command).replace("%", "%%")]
    processes = []
    for node in options["-w"].split(","):
        user, _, host = node.rpartition("@")
        names = {"%h": host, "%u": user or "nobody", "%%": "%"}
        argv = [expanded(word, names) for word in command]
        processes.append(
            (
                host,
                subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True),
            )
        )
    worst = 0
    for host, process in processes:
        label = host.split(".")[0]  # what pdsh calls a host
        out, err = process.communicate()
        sys.stdout.writelines(f"{label}: {line}\n" for line in out.splitlines())
        sys.stderr.writelines(f"{label}: {line}\n" for line in err.splitlines())
        if process.returncode:
            print(
                f"pdsh@here: {label}: exited with exit code {process.returncode}", file=sys.stderr
            )
        worst = max(worst, process.returncode)
    return worst if "-S" in options else 0


def expanded(word: str, names: dict[str, str]) -> str:
    parts = []
    while "%" in word:
        before, _, word = word.partition("%")
        parts += [before, names["%" + word[0]]]
        word = word[1:]
    return "".join((*parts, word))


def pdcp(arguments: list[str]) -> int:
    _, (source, target) = split(arguments, "fwlR")
    copy(Path(source), Path(target))
    return 0


def rpdcp(arguments: list[str]) -> int:
    options, (pattern, target) = split(arguments, "fwlR")
    for node in options["-w"].split(","):
        for source in glob.glob(pattern):
            copy(Path(source), Path(target, f"{Path(source).name}.{node.rpartition('@')[2]}"))
    return 0


def scp(arguments: list[str]) -> int:
    _, paths = split(arguments, "o")
    source, target = (word.rpartition(":")[2] for word in paths)
    copy(Path(source), Path(target))
    return 0


def pkill(arguments: list[str]) -> int:
    """Ends only what wrote its pid into $SHIM_PIDS: the real one would end anybody's."""
    pids = Path(os.environ["SHIM_PIDS"])
    for pid in pids.read_text().split() if pids.exists() else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    pids.unlink(missing_ok=True)
    return 0


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


if __name__ == "__main__":
    name = Path(sys.argv[0]).name
    note(name, sys.argv[1:])
    programs = {"pdsh": pdsh, "pdcp": pdcp, "rpdcp": rpdcp, "scp": scp, "pkill": pkill}
    sys.exit(programs[name](sys.argv[1:]))
