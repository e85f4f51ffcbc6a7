"""The processor time of client processes: from a host's samples to seconds of a window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.archive.files import Malformed
from cbt_crypto.results.cell.client import (
    ClientSamples,
    clients_used,
    cores_per_second,
    read_client_cpu,
)
from cbt_crypto.results.cell.window import Window

pytestmark = pytest.mark.unit

HEADER = "# ticks a second: 100\n"


def series(path: Path, text: str) -> Any:
    path.write_text(text)
    return read_client_cpu(path)


def samples(path: Path, seconds: int = 12, user: int = 150, system: int = 50) -> ClientSamples:
    """A host that took 1.5 cores of user and 0.5 of system time, two seconds ahead of the head."""
    lines = (f"{1000 + n}.000 {user * n} {system * n}\n" for n in range(seconds + 1))
    return ClientSamples("client0", series(path, HEADER + "".join(lines)), 2.0)


def test_cores_are_of_the_windows_seconds(tmp_path: Path) -> None:
    """On the head's clock the samples begin at 998."""
    problems: list[Any] = []
    one = samples(tmp_path / "one")
    (use,) = clients_used([one], Window(1000.5, 1008.5), problems)
    assert use.cores == pytest.approx({"user": 1.5, "sys": 0.5})
    assert use.seconds == 8
    by_second = cores_per_second([one, one], [], [], Window(1000.5, 1008.5))["client_cpu"]
    assert by_second["user"].tolist() == pytest.approx([3.0] * 8)
    assert problems == []


def test_samples_that_do_not_cover_the_window_make_no_figure(tmp_path: Path) -> None:
    problems: list[Any] = []
    assert clients_used([samples(tmp_path / "one")], Window(1000, 1060), problems) == ()
    (problem,) = problems
    assert problem.sentence.startswith(
        "client0: the record of its client processes' CPU covers 10 of"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1000.0 1 1\n1001.0 2 2\n",
        "# ticks a second: 0\n1000.0 1 1\n1001.0 2 2\n",
        f"{HEADER}1000.0 1 1\n",
        f"{HEADER}1000.0 1 1\n1001.0 2\n",
        f"{HEADER}1000.0 1 1\n999.0 2 2\n",
        f"{HEADER}1000.0 1 1\n1001.0 0 2\n",
        f"{HEADER}1000.0 1 1\n1001.0 {'9' * 40} 2\n",
    ],
)
def test_what_cannot_be_trusted_is_not_used(tmp_path: Path, text: str) -> None:
    with pytest.raises(Malformed):
        series(tmp_path / "one", text)


def test_a_line_that_was_torn_is_left_out(tmp_path: Path) -> None:
    assert len(series(tmp_path / "one", f"{HEADER}1.0 1 1\n2.0 2 2\n3.0 9").epoch_s) == 2
