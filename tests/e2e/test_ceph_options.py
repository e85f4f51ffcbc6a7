"""An option of a real OSD that is changed by hand, and changed back before the cell ends."""

from __future__ import annotations

import subprocess
import time
from typing import Any, Callable

import pytest

from cbt_crypto.hosts.admin_socket_on_host import ask

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NAME, WANTED = "osd_mclock_profile", "high_recovery_ops"
BENCHMARKS = {
    "rbd_single_client": {
        "vol_size": 64, "time": 12, "ramp": 1, "iodepth": 4, "mode": "randread", "op_size": 4096,
    }
}  # fmt: skip


def test_what_is_changed_by_hand_fails_the_cell(machine_factory: Callable[[str], Any]) -> None:
    machine = machine_factory("options")
    config = machine.write(
        {"recovery first": {"ceph_options": {"osd": {NAME: WANTED}}}}, BENCHMARKS, {"sampler": None}
    )
    said = machine.directory / "said"
    with open(said, "w") as file:
        campaign = subprocess.Popen(machine.command(config), stdout=file, stderr=file)
        try:
            while not any("--time_based" in line for line in machine.leftovers()):
                assert campaign.poll() is None, said.read_text()
                time.sleep(0.5)
            time.sleep(2)
            (socket,) = machine.tmp_dir.glob("**/run/osd.0.asok")
            for value in ("balanced", WANTED):
                ask(str(socket), {"prefix": "config set", "var": NAME, "val": [value]})  # type: ignore[dict-item]
                time.sleep(4)
            status = campaign.wait(120)
        finally:
            campaign.terminate()
            campaign.wait(60)
    assert status == 1
    assert f"osd.0 ran with {NAME} = balanced meanwhile, and not {WANTED}" in said.read_text()
