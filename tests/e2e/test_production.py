"""OSDs have what the package's own service would give them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.cluster_overlays.osd_service import CACHE, CACHE_BYTES, OPEN_FILES

pytestmark = pytest.mark.e2e

UNIT = Path("/lib/systemd/system/ceph-osd@.service")
DEFAULTS = Path("/etc/default/ceph")


def test_the_defaults_are_the_package_s() -> None:
    environment = dict(re.findall(r"^(\w+)=(\S+)$", DEFAULTS.read_text(), re.MULTILINE))
    limits = dict(re.findall(r"^(Limit\w+)=(\S+)$", UNIT.read_text(), re.MULTILINE))
    assert environment == {CACHE: str(CACHE_BYTES)}
    assert limits["LimitNOFILE"] == str(OPEN_FILES)


def test_every_osd_has_them_and_another_cache_takes_a_restart(machine: Any) -> None:
    configurations = {
        "As packaged": {},
        "Small cache": {"osd_service": {"tcmalloc_cache": 32 << 20, "open_files": 8192}},
    }
    load = {"vol_size": 64, "time": 3, "op_size": 4096, "iodepth": 8}
    done = machine.run(machine.write(configurations, {"rbd_single_client": load}))
    assert done.returncode == 0, done.stdout + done.stderr
    seen = {}
    for cell in machine.cells():
        proof = next(v for v in cell["proof"]["overlays"] if v["overlay"] == "osd_service")
        assert proof["proved"]
        seen[cell["configuration"]] = {
            osd["environment"][CACHE] for osd in proof["evidence"].values()
        }
    assert seen == {"As packaged": {str(CACHE_BYTES)}, "Small cache": {str(32 << 20)}}
