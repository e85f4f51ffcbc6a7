"""A fault at each step of a campaign on real Ceph: what becomes of the cluster is never silent.

The table is generated, step x fault. A few rows run always; all of them with EVERY_FAULT=1 set.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

CONFIGURATIONS = {"Unencrypted": {}, "Secure messenger": {"secure_messenger": {}}}
BENCHMARKS = {
    "rbd_single_client": {
        "vol_size": 64, "time": 2, "iodepth": 8, "op_size": 4096, "mode": "randread",
    },
}  # fmt: skip
#: Step -> what the campaign prints when it begins.
STEPS = {
    "deployment": "deploy Unencrypted (rebuild",
    "cell": "cell 1/2",
    "restart": "deploy Secure messenger (restart",
    "tearing down": "tear the cluster down",
    "report": "torn down: nothing is left on ",
}


def _send(number: int) -> Callable[[Any, Any], None]:
    return lambda campaign, disk: campaign.send_signal(number)


def _close(campaign: Any, disk: Path) -> None:
    campaign.stdout.close()


def _fill(campaign: Any, disk: Path) -> None:
    """Of the archive, and of the head's temporary directory."""
    with (disk / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 20))
        except OSError:
            pass


def _break(campaign: Any, disk: Path) -> None:
    """As ext4 does at an error of its drive, whoever has files open there: read-only from now."""
    source = subprocess.check_output(["findmnt", "-no", "SOURCE", str(disk)], text=True)
    Path("/sys/fs/ext4", Path(source.strip()).name, "trigger_fs_error").write_text("x")


FAULTS: dict[str, Callable[[Any, Any], None]] = {
    "SIGINT": _send(signal.SIGINT),
    "SIGTERM": _send(signal.SIGTERM),
    "SIGHUP": _send(signal.SIGHUP),
    "closed pipe": _close,
    "full disk": _fill,
    "read-only disk": _break,
}
ALWAYS = {
    ("deployment", "SIGTERM"),
    ("cell", "closed pipe"),
    ("restart", "SIGHUP"),
    ("tearing down", "SIGINT"),
    ("tearing down", "full disk"),
    ("cell", "read-only disk"),
    ("report", "SIGTERM"),
}
EVERY = [(step, fault) for step in STEPS for fault in FAULTS]
CHOSEN = EVERY if os.environ.get("EVERY_FAULT") else [row for row in EVERY if row in ALWAYS]


def expected_status(fault: str) -> int:
    """How a campaign ends: a reader that leaves changes nothing."""
    return 0 if fault == "closed pipe" else 1


def table() -> str:
    """Make the table of docs/safety.md: what becomes of a campaign at each step by each fault."""
    rows = [["during", *FAULTS], ["---"] * (len(FAULTS) + 1)]
    rows += [[step, *(f"down, {expected_status(fault)}" for fault in FAULTS)] for step in STEPS]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system for the archive and for temporary files."""
    if os.geteuid() != 0:
        pytest.skip("a small file system needs root")
    place, image = tmp_path / "disk", tmp_path / "image"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(48 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop,errors=remount-ro", str(image), str(place)], check=True)
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize(("step", "fault"), CHOSEN)
def test_nothing_is_left_in_silence(machine: Any, disk: Path, step: str, fault: str) -> None:
    config = machine.write(CONFIGURATIONS, BENCHMARKS)
    document = yaml.safe_load(config.read_text())
    document["cluster"]["rebuild"] = "needed"
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    archive = disk / "archive"
    # Whoever started the tests may have done so with nohup, which a campaign respects.
    campaign = subprocess.Popen(
        ["env", "--default-signal=HUP", *machine.command(config, "-a", str(archive))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(disk)},
    )  # fmt: skip
    assert campaign.stdout is not None and campaign.stderr is not None
    seen = ""
    for line in campaign.stdout:
        seen += line
        if STEPS[step] in line:
            break
    else:
        pytest.fail(f"{step} did not begin: {seen}{campaign.stderr.read()}")
    FAULTS[fault](campaign, disk)
    if not campaign.stdout.closed:
        seen += campaign.stdout.read()
    said = campaign.stderr.read()
    status = campaign.wait(timeout=300)
    assert "Traceback" not in said, said
    # A step may be over before its fault: then nothing failed, and the report is there.
    was_over = status == 0 and "\nReport: " in seen
    assert status == expected_status(fault) or was_over, (status, seen, said)
    if fault.startswith("SIG"):
        # In tearing down, or later, all is measured: the report comes all the same, or is told of.
        assert "interrupted; " in said, (seen, said)
    if machine.leftovers():
        assert f"remove it with: cbt-crypto cleanup {archive}" in said, (seen, said)
    else:
        assert fault == "closed pipe" or "torn down: nothing is left on localhost" in seen
    # A disk that is full is no reason to leave a cluster.
    assert machine.leftovers() == []
