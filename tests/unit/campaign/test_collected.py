"""Results that did not arrive whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from cbt_crypto.engine.embedded import common
from cbt_crypto.errors import HostError, RunError
from cbt_crypto.hosts.remote import Remote, check_clocks
from cbt_crypto.run.cell import measure

pytestmark = pytest.mark.unit


def test_what_is_there_must_arrive(tmp_path: Path) -> None:
    run_dir, archive = tmp_path / "run dir", tmp_path / "archive"
    (run_dir / "collectl").mkdir(parents=True)
    (run_dir / "json_output.0").write_text("0123456789")
    (run_dir / "collectl" / "a.gz").write_text("01234")
    wanted = measure.sizes(Remote(common, "/t"), ["localhost"], str(run_dir))
    assert wanted == {"localhost": {"json_output.0": 10, "collectl/a.gz": 5}}
    (archive / "collectl.localhost").mkdir(parents=True)
    with pytest.raises(HostError, match="is missing in the archive"):
        measure.check(wanted, archive)
    (archive / "collectl.localhost" / "a.gz").write_text("01234 and what came later")
    (archive / "json_output.0.localhost").write_text("01234")
    with pytest.raises(HostError, match=r"localhost: copy json_output\.0 .*has 5 of 10 bytes"):
        measure.check(wanted, archive)
    (archive / "json_output.0.localhost").write_text("0123456789")
    measure.check(wanted, archive)
    with pytest.raises(HostError, match=r"copy n* from it: is missing in the archive"):
        measure.check({"localhost": {"n" * 300: 1}}, archive)


def test_a_clock_that_was_set_during_a_cell() -> None:
    check_clocks({"a": 3.0, "b": 0.0}, {"a": 3.4, "b": -0.5}, 0.1)
    with pytest.raises(RunError, match=r"^b: its clock was set by \+5\.0 s during the cell"):
        check_clocks({"a": 3.0, "b": 0.0}, {"a": 3.0, "b": 5.0}, 0.0)
    # Hosts that are this machine move with it, and were no different.
    with pytest.raises(RunError, match=r"^this machine: its clock was set by -9\.0 s during"):
        check_clocks({"a": 3.0, "b": 0.0}, {"a": 3.0, "b": 9.0}, -9.0)
