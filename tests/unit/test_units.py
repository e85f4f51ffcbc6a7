from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from cbt_crypto.cli import cbt_crypto
from cbt_crypto.units import counted

pytestmark = pytest.mark.unit


def test_one_thing_is_not_several() -> None:
    assert [counted(number, "cell") for number in (0, 1, 2)] == ["0 cells", "1 cell", "2 cells"]


def test_check_counts_as_people_do(tmp_path: Path) -> None:
    path = tmp_path / "campaign.yaml"
    cluster = {
        "head": "a", "clients": ["a"], "osds": ["a"], "replication": 1,
        "mons": {"a": {"a": "10.0.0.1"}},
        "mgrs": {"a": {"x": None}}, "osds_per_node": 1, "control": False,
    }  # fmt: skip
    load = {"vol_size": 64, "time": 1, "op_size": 4096, "workloads": {"mode": ["randread"]}}
    path.write_text(yaml.safe_dump({"cluster": cluster, "benchmarks": {"rbd_single_client": load}}))
    result = CliRunner().invoke(cbt_crypto, ["check", "--no-hosts", str(path)])
    # What is to be said of the file needs no hosts.
    warning, good = result.output.splitlines()
    assert warning.startswith("warning: campaign: rbd_single_client: its 1 volume of 64M fits into")
    assert good == (
        f"{path}: good: 1 configuration, 1 scenario, 1 cell; neither hosts nor options of Ceph "
        "were looked at"
    )
