"""What stands in a new lab's way, with the real builder: each is one sentence, and leaves nothing
that the next attempt would have to clear by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cbt_crypto.lab import image

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

LAB_UP = [sys.executable, "-m", "cbt_crypto", "lab", "up", "--name", "not-to-be"]
#: Builds without asking first whether there is space, so that it runs out midway.
BUILD = """
import io
from rich.console import Console
from cbt_crypto.errors import CampaignError
from cbt_crypto.lab import image
from cbt_crypto.lab.shape import Steps
image._BUILD_SPACE = 0
try:
    image.provide("trixie", Steps(Console(file=io.StringIO())))
except CampaignError as error:
    raise SystemExit(str(error))
"""


def attempt(
    command: list[str], cache: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(cache), **environment},
    )  # fmt: skip


def on_a_small_disk(command: list[str], cache: Path) -> subprocess.CompletedProcess[str]:
    """The command with a cache that has 60 MiB of space."""
    cache.mkdir()
    mounted = 'mount -t tmpfs -o size=60M small "$0" && exec "$@"'
    return attempt(image.isolated(["sh", "-c", mounted, str(cache), *command]), cache)


def test_a_package_index_that_cannot_be_reached(tmp_path: Path) -> None:
    done = attempt([*LAB_UP, "--mirror", "http://127.0.0.1:9/debian"], tmp_path, http_proxy="")
    (sentence,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert sentence.startswith(
        "building the lab image failed: the Debian package index cannot be reached; "
        "check the network, or name one with --mirror (log: "
    )
    assert Path(sentence.rpartition("(log: ")[2].rstrip(")")).exists()
    down = attempt([*LAB_UP[:4], "down", "--name", "not-to-be"], tmp_path)
    assert (down.returncode, down.stderr) == (0, "")


def test_too_little_space_to_start_with(tmp_path: Path) -> None:
    done = on_a_small_disk(LAB_UP, tmp_path / "cache")
    (sentence,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert sentence.startswith("building the lab image needs 4.0 GiB below ")
    assert sentence.endswith("0.1 GiB left; free some space, or set XDG_CACHE_HOME to a larger "
                             "file system")  # fmt: skip


def test_space_that_runs_out_midway(tmp_path: Path) -> None:
    done = on_a_small_disk([sys.executable, "-c", BUILD], tmp_path / "cache")
    (sentence,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert sentence.startswith("building the lab image failed: the disk is full; free some space")


def test_a_machine_without_qemu(tmp_path: Path) -> None:
    done = attempt(LAB_UP, tmp_path, PATH=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "--kind vm needs qemu-system-x86_64; install the package qemu-system-x86, "
        "or use --kind namespace"
    ]
