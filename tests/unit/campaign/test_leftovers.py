"""Taking down goes on when a host does not answer, but keeps the notes on its devices."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cbt_crypto.errors import HostError
from cbt_crypto.run.targets.cluster import take_down

pytestmark = pytest.mark.unit


class Cluster:
    def __init__(self, *failing: str) -> None:
        self.failing = failing
        self.taken: list[str] = []

    def shutdown(self) -> None:
        self._take("shutdown")

    def cleanup(self) -> None:
        self._take("cleanup")

    def purge(self) -> None:
        self._take("purge")

    def _take(self, step: str) -> None:
        self.taken.append(step)
        if step in self.failing:
            raise HostError("o1", step, "no answer", "")


def test_all_is_taken_down() -> None:
    cluster = Cluster()
    take_down(cluster)
    assert cluster.taken == ["shutdown", "cleanup", "purge"]


@pytest.mark.parametrize("failing", [("shutdown",), ("cleanup",), ("shutdown", "cleanup")])
def test_a_silent_host(failing: tuple[str, ...]) -> None:
    cluster = Cluster(*failing)
    with pytest.raises(HostError, match=f"o1: {failing[0]}: no answer"):
        take_down(cluster)
    assert cluster.taken == ["shutdown", "cleanup"]


def test_the_libraries_of_reports_are_loaded_by_reports_alone() -> None:
    """A node that only measures need not have them, and is to be cleared all the same."""
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('lxml', 'matplotlib', 'numpy')))\n"
        "from cbt_crypto.cli import cbt_crypto; cbt_crypto(['cleanup', '--help'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Remove what an interrupted campaign left" in done.stdout
