"""What is made of exit statuses, clocks and last words."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.benchmarks.base import ClientProcess
from cbt_crypto.engine.embedded import common
from cbt_crypto.errors import RunError
from cbt_crypto.hosts import remote
from cbt_crypto.hosts.remote import Remote, clock_offsets
from cbt_crypto.hosts.site import Site
from cbt_crypto.run.cell.measure import failed_processes, outcome_of

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("printed", "status"),
    [
        ("exit_status.0:0\nexit_status.1:5\nexit_status.11:9", 5),
        ("exit_status.1:0", 0),
        ("exit_status.11:0", None),
        ("exit_status.1:", None),
        ("", None),
    ],
)
def test_each_process_has_the_status_of_its_own_file(printed: str, status: Any) -> None:
    found = outcome_of(ClientProcess("c0", "1"), {"c0": printed, "c1": "exit_status.1:7"})
    assert found == {
        "host": "c0",
        "volume": "1",
        "exit_status": status,
        "json": "json_output.1.c0",
        "logs": "output.1",
    }


@pytest.mark.parametrize(
    ("status", "said", "sentence"),
    [
        (1, "first\nno such pool\n\n", "c0: fio 3 exited with 1: no such pool"),
        (1, "", "c0: fio 3 exited with 1"),
        (1, None, "c0: fio 3 exited with 1"),
        (None, "x" * 500, "c0: fio 3 left no exit status: " + "x" * 300),
        (127, "\xff\n", "c0: fio 3 exited with 127: \ufffd"),
    ],
)
def test_a_process_that_failed_is_named_with_its_last_words(
    tmp_path: Path, status: Any, said: Any, sentence: str
) -> None:
    if said is not None:
        (tmp_path / "output.3.c0").write_bytes(said.encode("latin-1"))
    fine = {"host": "c1", "volume": "0", "exit_status": 0}
    failed = {"host": "c0", "volume": "3", "exit_status": status}
    with pytest.raises(RunError) as caught:
        failed_processes({"processes": [fine, failed]}, tmp_path)
    assert str(caught.value) == sentence


def test_the_last_words_of_an_endless_output_are_not_read(tmp_path: Path) -> None:
    """A host's whole file was read, however large."""
    (tmp_path / "output.3.c0").touch()
    os.truncate(tmp_path / "output.3.c0", 65 << 20)
    failed = {"host": "c0", "volume": "3", "exit_status": 1}
    with pytest.raises(RunError, match=r"exited with 1$"):
        failed_processes({"processes": [failed]}, tmp_path)


def test_processes_that_did_well(tmp_path: Path) -> None:
    failed_processes({"processes": [{"host": "c", "volume": "0", "exit_status": 0}]}, tmp_path)


def test_clocks_are_compared_with_this_machine_s(
    shims: Any, programs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "local_names", lambda: frozenset({"here"}))
    date = shutil.which("date") or ""
    programs(
        "date", '[ "$CBT_HOST" = late ] && echo 1000.5 || exec DATE "$@"'.replace("DATE", date)
    )
    site = Site("/t", "/c", "here", ("late",), ())
    found = clock_offsets(Remote(common, "/t"), site)
    assert abs(found["here"]) < 30
    assert abs(found["late"] - (1000.5 - time.time())) < 60
