"""A cluster that is not called ceph, and a key that does for images alone: Reef's and Tentacle's.

tests/long/test_stock_of_this_machine.py has the same of this machine's Ceph.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from real_labs import namespaces, running_lab
from stock_clusters import MAKE_NAMED, NAMED, SCRIPT, campaigns, run_script

import cbt_crypto
from cbt_crypto.lab import access, run
from cbt_crypto.lab.run import CBT_SCRIPT
from cbt_crypto.lab.shape import Release

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.mark.parametrize("release", [Release.REEF, Release.TENTACLE], ids=lambda r: str(r.value))
def test_what_is_encrypted_is_proved_whatever_cluster_and_client_are_called(
    release: Release,
) -> None:
    files = {
        "cbt.py": CBT_SCRIPT,
        "cbt_crypto": Path(cbt_crypto.__file__).parent,
        "stock.sh": SCRIPT,
        **campaigns("node0", "/root/mine", keys=NAMED),
    }
    modes = " ".join(f"'ms_{who}_mode = secure'" for who in ("client", "cluster", "service"))
    with running_lab(f"named-test-{os.getpid()}", namespaces(1, ceph=release)) as lab:
        run.put(lab, lab.head, "/root/campaign", files)
        access.run(lab, lab.head, f"{MAKE_NAMED}/root/campaign/stock.sh {modes}")
        said = {
            name: access.run(lab, lab.head, run_script(name, "/root/campaign", "python3 cbt.py"))
            for name in ("secure", "plain")
        }
    assert said["secure"].startswith("secure: proved"), said
    assert said["plain"].startswith("plain: refused"), said
