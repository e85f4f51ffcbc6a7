"""Carries files between this machine and a node, as tar through ssh."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Optional, Union, cast

from cbt_crypto.errors import RunError
from cbt_crypto.lab.nodes import ssh
from cbt_crypto.lab.shape import Lab, Node

#: What a checkout may hold and a node does not need.
_LEFT_OUT = {"__pycache__", ".git", ".venv", ".tox", ".mypy_cache", ".pytest_cache"}
#: Beside an archive's results while new ones replace them.
_INCOMING = ".results.incoming"
_REPLACED = ".results.replaced"


def put(lab: Lab, node: Node, directory: str, files: Mapping[str, Union[Path, str]]) -> None:
    """Make `directory` on the node hold exactly `files`: name there -> path here, or a text.

    Directories are carried with all below them, links as what they point to.
    """
    script = f"rm -rf {directory} && mkdir -p {directory} && tar -x -C {directory}"
    process = subprocess.Popen(
        ssh.command(lab, node, script), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    # When the node gives up, the reason is in its errors.
    with contextlib.suppress(BrokenPipeError):
        pack(cast(IO[bytes], process.stdin), files)
    errors = process.communicate()[1]
    _check(node, "carrying files in", process.returncode, errors)


def pack(stream: IO[bytes], files: Mapping[str, Union[Path, str]]) -> None:
    """Write `files`, as `put` takes them, to `stream` as a tar."""
    with tarfile.open(fileobj=stream, mode="w|", dereference=True) as tar:
        for name, content in files.items():
            _add(tar, name, content)


def has(lab: Lab, node: Node, path: str) -> bool:
    """Whether `path` exists on the node."""
    return ssh.run(lab, node, f"[ -e {path} ] && echo yes || echo no").strip() == "yes"


def bring_results(lab: Lab, node: Node, remote_archive: str, archive: Path) -> None:
    """Replace the archive's `results` by those on the node, all of them or none."""
    mend(archive)
    incoming = archive / _INCOMING
    incoming.mkdir(parents=True)
    remote = subprocess.Popen(
        ssh.command(lab, node, f"tar -c -C {remote_archive} results"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    unpack = ["tar", "-x", "--no-same-owner", "-C", str(incoming)]
    local = subprocess.run(unpack, stdin=remote.stdout, stderr=subprocess.PIPE, check=False)
    errors = remote.communicate()[1]
    _check(node, "bringing the archive back", remote.returncode, errors)
    _check(node, f"unpacking into {archive}", local.returncode, local.stderr)
    results = archive / "results"
    if results.exists():
        results.rename(archive / _REPLACED)
    (incoming / "results").rename(results)
    mend(archive)


def mend(archive: Path) -> None:
    """Clear what a kill during `bring_results` left: the archive has its old results or the new."""
    replaced, results = archive / _REPLACED, archive / "results"
    if replaced.exists() and not results.exists():
        replaced.rename(results)
    for leftover in (replaced, archive / _INCOMING):
        if leftover.exists():
            shutil.rmtree(leftover)


def _add(tar: tarfile.TarFile, name: str, content: Union[Path, str]) -> None:
    if isinstance(content, Path):
        tar.add(content, name, filter=_wanted)
        return
    data = content.encode()
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o755
    tar.addfile(member, io.BytesIO(data))


def _wanted(member: tarfile.TarInfo) -> Optional[tarfile.TarInfo]:
    if os.path.basename(member.name) in _LEFT_OUT:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def _check(node: Node, what: str, status: int, errors: bytes) -> None:
    if status != 0:
        lines = errors.decode(errors="replace").strip().splitlines() or [f"exit status {status}"]
        raise RunError(f"{node.name}: {what} failed: {lines[-1]}")
