from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import synthetic_archive
from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    """perf/synthetic_archive.py, which writes archives with known figures."""
    return synthetic_archive


@pytest.fixture(scope="session")
def data() -> Path:
    """Files that the tests share."""
    return Path(__file__).parent.parent / "data"


@pytest.fixture(scope="session")
def _small(tmp_path_factory: pytest.TempPathFactory, synthetic: Any) -> Path:
    """Two configurations, two modes, two processes on two clients; each 12 s."""
    shape = synthetic.SyntheticScenario("rbd_multi_client", 2, 1, (4096,))
    campaign = synthetic.SyntheticCampaign(
        scenarios=[shape],
        configurations=["Unencrypted", "LUKS"],
        load=lambda cell: synthetic.Load(500.0 if cell.configuration == "LUKS" else 1000.0, 2.0),
        cpu=lambda cell: {"user": 20.0, "sys": 20.0 if cell.configuration == "LUKS" else 10.0},
        seconds=12,
    )
    written: Path = synthetic.write_archive(campaign, tmp_path_factory.mktemp("small"))
    return written


@pytest.fixture(scope="session")
def measured_again() -> Callable[[Path, Path], Path]:
    """Copy an archive with cells that began a minute later: the same figures, by chance."""

    def copied(archive: Path, to: Path) -> Path:
        shutil.copytree(archive, to)
        for place in to.glob("results/*/*/cell.json"):
            cell = json.loads(place.read_text())
            place.write_text(json.dumps({**cell, "started": cell["started"] + 60}))
        return to

    return copied


@pytest.fixture(scope="session")
def _repeated(tmp_path_factory: pytest.TempPathFactory, synthetic: Any) -> Path:
    """Three configurations, of which one is the control, and two modes in four rounds."""
    wobble = (1.0, 1.01, 0.995, 1.004)
    share = {"LUKS": 0.5}
    shape = synthetic.SyntheticScenario("rbd_multi_client", 2, 1, (4096,))

    def load(cell: Any) -> Any:
        turn = (cell.iteration + len(cell.configuration)) % len(wobble)
        return synthetic.Load(1000.0 * share.get(cell.configuration, 1.0) * wobble[turn], 2.0)

    campaign = synthetic.SyntheticCampaign(
        scenarios=[shape], configurations=["Unencrypted", "control", "LUKS"], load=load,
        seconds=12, iterations=4, rounds=True,
    )  # fmt: skip
    return Path(synthetic.write_archive(campaign, tmp_path_factory.mktemp("repeated") / "archive"))


@pytest.fixture
def repeated(tmp_path: Path, _repeated: Path) -> Path:
    """An archive of this test's own with a control, each of four rounds on its own deployment."""
    return Path(shutil.copytree(_repeated, tmp_path / "archive"))


@pytest.fixture
def small(tmp_path: Path, _small: Path) -> Path:
    """A small archive of this test's own: LUKS has half the IOPS and twice the sys time."""
    return Path(shutil.copytree(_small, tmp_path / "archive"))
