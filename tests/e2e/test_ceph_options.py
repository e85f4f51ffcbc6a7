"""An option of a real OSD or pool that is changed by hand, and back before the cell ends."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any, Callable

import pytest
import yaml

from cbt_crypto.hosts.admin_socket_on_host import ask

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NAME, WANTED = "osd_mclock_profile", "high_recovery_ops"
LOAD = {
    "vol_size": 64, "time": 12, "ramp": 1, "iodepth": 4, "mode": "randread", "op_size": 4096,
}  # fmt: skip


def changed_by_hand(machine: Any, config: Path, change: Callable[[str], object], *to: str) -> str:
    """What a campaign says, in whose only cell somebody makes these changes; it has to fail."""
    said = machine.directory / "said"
    with open(said, "w") as file:
        campaign = subprocess.Popen(machine.command(config), stdout=file, stderr=file)
        try:
            while not any("--time_based" in line for line in machine.leftovers()):
                assert campaign.poll() is None, said.read_text()
                time.sleep(0.5)
            time.sleep(2)
            for value in to:
                change(value)
                time.sleep(4)
            status = campaign.wait(120)
        finally:
            campaign.terminate()
            campaign.wait(60)
    assert status == 1
    return str(said.read_text())


def test_what_is_changed_by_hand_fails_the_cell(machine_factory: Callable[[str], Any]) -> None:
    machine = machine_factory("options")
    config = machine.write(
        {"recovery first": {"ceph_options": {"osd": {NAME: WANTED}}}},
        {"rbd_single_client": LOAD}, {"sampler": None},
    )  # fmt: skip

    def change(value: str) -> None:
        (socket,) = machine.tmp_dir.glob("**/run/osd.0.asok")
        ask(str(socket), {"prefix": "config set", "var": NAME, "val": [value]})

    said = changed_by_hand(machine, config, change, "balanced", WANTED)
    assert f"osd.0 ran with {NAME} = balanced meanwhile, and not {WANTED}" in said


def test_a_pool_that_is_changed_by_hand_fails_the_cell(
    machine_factory: Callable[[str], Any],
) -> None:
    machine = machine_factory("pools")
    config = machine.write(
        {"pieces": {"pools": {"data": "pieces"}}},
        {"rbd_single_client": {**LOAD, "data_pool_profile": "data"}}, {"sampler": None},
    )  # fmt: skip
    document = yaml.safe_load(config.read_text())
    document["cluster"] |= {
        "osds_per_node": 3,
        "erasure_profiles": {"isa": {"erasure_k": 2, "erasure_m": 1, "erasure_plugin": "isa"}},
    }
    document["cluster"]["pool_profiles"] |= {
        "data": {"pg_size": 8, "pgp_size": 8, "replication": 2},
        "pieces": {
            "pg_size": 8,
            "pgp_size": 8,
            "erasure_profile": "isa",
            "compression_mode": "force",
        },
    }
    config.write_text(yaml.safe_dump(document, sort_keys=False))

    def change(value: str) -> None:
        conf = machine.tmp_dir / "ceph" / "ceph.conf"
        words = ("osd", "pool", "set", "data", "compression_mode", value)
        subprocess.run(("ceph", "-c", str(conf), *words), check=True, timeout=60)

    said = changed_by_hand(machine, config, change, "none", "force")
    assert "pools: pool data: it was changed while the cell ran" in said
    (cell,) = machine.cells()
    (pools,) = (each for each in cell["proof"]["overlays"] if each["overlay"] == "pools")
    assert pools["evidence"]["data"]["objects"] > 0
