"""A campaign on a lab's head node: carried in, run with its output here, its archive back."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Optional, Union, cast

import cbt_crypto
from cbt_crypto.archive.files import one_line, read_json
from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.hosts import ceph_conf, fetch, shell
from cbt_crypto.lab import access
from cbt_crypto.lab.shape import Lab, Node, Steps, locked
from cbt_crypto.plan.file import read_campaign
from cbt_crypto.plan.layout import site_of
from cbt_crypto.plan_command import with_conf
from cbt_crypto.run.locks import locked as archive_locked
from cbt_crypto.run.resume import check_archive
from cbt_crypto.units import counted

#: What a checkout may hold and a node does not need.
_LEFT_OUT = {"__pycache__", ".git", ".venv", ".tox", ".mypy_cache", ".pytest_cache"}
#: Beside an archive's results while new ones replace them.
_INCOMING = ".results.incoming"
_REPLACED = ".results.replaced"


def put(lab: Lab, node: Node, directory: str, files: Mapping[str, Union[Path, str]]) -> None:
    """Make `directory` on the node hold exactly `files`: name there -> path or text here."""
    script = f"rm -rf {directory} && mkdir -p {directory} && tar -x -f - -C {directory}"
    process = subprocess.Popen(
        access.command(lab, node, script), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    # When the node gives up, the reason is in its errors.
    try:
        pack(cast(IO[bytes], process.stdin), files)
    except PermissionError as error:
        process.kill()
        raise UsageError(f"{error.filename}: cannot be read; change its mode or move it") from None
    except BrokenPipeError:
        pass
    errors = process.communicate()[1].decode(errors="replace").strip().splitlines()
    if process.returncode != 0:
        reason = errors[-1] if errors else f"exit status {process.returncode}"
        raise RunError(f"{node.name}: carrying files in failed: {reason}")


def pack(stream: IO[bytes], files: Mapping[str, Union[Path, str]]) -> None:
    """Write `files`, as `put` takes them, to `stream` as a tar."""
    with tarfile.open(fileobj=stream, mode="w|", dereference=True) as tar:
        for name, content in files.items():
            _add(tar, name, content)


def bring_results(lab: Lab, node: Node, remote_archive: str, archive: Path) -> None:
    """Replace the archive's `results` by those on the node, all of them or none."""
    settle(archive)
    incoming = archive / _INCOMING
    incoming.mkdir(parents=True)
    mark = f"@cbt-crypto-files-{secrets.token_hex(8)}"
    command = access.command(lab, node, fetch.script(f"{remote_archive}/results", mark))
    problem = fetch.fetch(command, mark, incoming / "results")
    if problem is not None:
        raise RunError(f"{node.name}: copying the archive back failed: {problem}")
    results = archive / "results"
    if lacking := len(_finished(results) - _finished(incoming / "results")):
        shutil.rmtree(incoming)
        raise UsageError(
            f"{archive}: has {counted(lacking, 'finished cell')} that {node.name} of lab {lab.name}"
            " has not, measured elsewhere since; they stay. For what the node has, move the"
            " archive away first, and run the same command again"
        )
    if results.exists():
        results.rename(archive / _REPLACED)
    (incoming / "results").rename(results)
    settle(archive)


def _finished(results: Path) -> set[str]:
    """What cell.json says of each finished cell, repeated ones included."""
    cells = map(read_json, results.glob("*/*/cell.json"))
    return {json.dumps(cell) for cell in cells if cell and cell.get("state") == "finished"}


def settle(archive: Path) -> None:
    """Clear what a kill during `bring_results` left; UsageError for a link in an archive."""
    replaced, results = archive / _REPLACED, archive / "results"
    for path in (replaced, archive / _INCOMING, results):
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise UsageError(f"{path}: is no directory; remove it")
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


#: On the head node: our package and the campaign's files; its results.
_CAMPAIGN = "/root/campaign"
_ARCHIVE = "/root/archive"
CBT_SCRIPT = '#!/usr/bin/env python3\nfrom cbt_crypto.main import cbt\n\ncbt(prog_name="cbt.py")\n'


@dataclass(frozen=True)
class LabCampaign:
    """What is asked of `lab run`; paths are of this machine."""

    config: Path
    archive: Path
    conf: Optional[Path] = None
    checkout: Optional[Path] = None
    only: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    verbose: bool = False

    def files(self) -> dict[str, Union[Path, str]]:
        """What the head node needs, by its name there."""
        package = Path(cbt_crypto.__file__).parent
        files: dict[str, Union[Path, str]] = {
            "cbt.py": CBT_SCRIPT,
            "cbt_crypto": package,
            self.config.name: self.config,
        }
        if self.conf:
            files["ceph.conf"] = self.conf
        if self.checkout:
            files["cbt"] = self.checkout
        return files

    def command(self) -> list[str]:
        """The command on the head node, in the directory that has `files`."""
        options = ["-c", "ceph.conf"] if self.conf else []
        options += ["--cbt", "cbt"] if self.checkout else []
        for pattern in self.only:
            options += ["--only", pattern]
        for pattern in self.again:
            options += ["--again", pattern]
        options += ["--verbose"] if self.verbose else []
        return ["python3", "cbt.py", "--no-report", "-a", _ARCHIVE, *options, self.config.name]


def run(lab: Lab, job: LabCampaign, steps: Steps) -> int:
    """Run a campaign on the lab's head node with its output here; return its exit status.

    What was measured is brought back however it ends; cells the archive has are carried in first.
    Raises UsageError before anything is touched, RunError when the node is lost.
    """
    with alone(lab):
        job = _checked(lab, job)
        with archive_locked(job.archive):
            _carry_in(lab, job, steps)
            status = None
            try:
                status = follow(lab, job)
            except KeyboardInterrupt:
                raise RunError(
                    f"the campaign goes on on {lab.head.name}; the same command ends it there and "
                    "copies the rest back"
                ) from None
            finally:
                _bring_back(lab, job, steps, is_over=status is not None)
            return status


def alone(lab: Lab) -> contextlib.AbstractContextManager[None]:
    """Keep other runs off the lab. Raises UsageError when there is one."""
    busy = f"another lab run is at work on lab {lab.name}; wait until it ends"
    return locked(lab.directory / "run.lock", busy)


def _checked(lab: Lab, job: LabCampaign) -> LabCampaign:
    campaign = with_conf(read_campaign(job.config), job.conf)
    names = {node.name for node in lab.nodes}
    unknown = [host for host in site_of(campaign.cluster).hosts if host not in names]
    if unknown:
        raise UsageError(
            f"{job.config}: lab {lab.name} has no host {unknown[0]}; "
            f"its hosts are {', '.join(sorted(names))}"
        )
    archive = job.archive.resolve()
    if any(os.path.lexists(archive / name) for name in (_INCOMING, _REPLACED)):
        # They may be another lab's that is at work.
        with archive_locked(archive):
            settle(archive)
    conf = Path(campaign.cluster.conf_file) if campaign.cluster.conf_file else None
    if conf:
        ceph_conf.read(conf)
    check_archive(archive, campaign)
    if job.checkout and not job.checkout.exists():
        raise UsageError(f"--cbt {job.checkout}: no such directory; name a checkout of CBT")
    return replace(job, archive=archive, conf=conf)


def _carry_in(lab: Lab, job: LabCampaign, steps: Steps) -> None:
    steps.begin("Copying the campaign in")
    origin = access.run(
        lab, lab.head, shell.call(__file__, "end_and_tell", _CAMPAIGN, _ARCHIVE)
    ).strip()
    if origin not in ("", str(job.archive)):
        raise UsageError(
            f"{lab.head.name}: has what a killed lab run did not copy back; to do that, run "
            f"its file with -a {shlex.quote(one_line(origin))}; to lose them: cbt-crypto lab ssh "
            f"--name {lab.name} {lab.head.name} rm {_CAMPAIGN}/origin"
        )
    if origin:
        steps.detail("an earlier run left results; copying them back first")
        bring_results(lab, lab.head, _ARCHIVE, job.archive)
        access.run(lab, lab.head, f"rm -f {_CAMPAIGN}/origin")
    results = job.archive / "results"
    put(lab, lab.head, _ARCHIVE, {"results": results} if results.exists() else {})
    put(lab, lab.head, _CAMPAIGN, {**job.files(), "origin": str(job.archive)})
    steps.end()


def follow(lab: Lab, job: LabCampaign) -> int:
    """Run it with its output here; return its exit status."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    script = f"cd {_CAMPAIGN} && echo $$ > pid && exec {shlex.join(job.command())}"
    process = subprocess.Popen(
        access.command(lab, lab.head, script, tty=terminal),
        stdin=None if terminal else subprocess.DEVNULL,
        # Ctrl-C on a terminal is for the campaign, and not for the ssh that carries its output.
        start_new_session=not terminal,
    )
    # As cbt.py does: also where a shell started this in its background, deaf to interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    while True:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            access.run(lab, lab.head, shell.call(__file__, "interrupt", _CAMPAIGN))
        else:
            break
    if status == access.SSH_FAILED:
        if said := access.gone(lab, lab.head):
            raise RunError(
                f"{lab.head.name}: {said}; what it measured is lost; "
                f"start it again: cbt-crypto lab down --name {lab.name}, then lab up"
            )
        raise RunError(
            f"the connection to {lab.head.name} broke; run the same command again: it copies back "
            "what was measured"
        )
    return status


def _bring_back(lab: Lab, job: LabCampaign, steps: Steps, is_over: bool) -> None:
    steps.begin("Copying the archive back")
    if access.run(lab, lab.head, f"[ ! -e {_ARCHIVE}/results ] || echo there"):
        bring_results(lab, lab.head, _ARCHIVE, job.archive)
    if is_over:
        access.run(lab, lab.head, f"rm -f {_CAMPAIGN}/origin")
    steps.end()
