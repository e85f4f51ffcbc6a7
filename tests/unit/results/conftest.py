from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# how long an example takes says nothing on a machine that others use too
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(scope="session")
def data() -> Path:
    """Real outputs of fio, collectl and perf."""
    return Path(__file__).parent.parent / "data"
