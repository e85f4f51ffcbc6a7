"""Each release of Ceph that can be had here runs the same campaign; it writes docs/versions.md.

Debian 12 has 16.2, on this machine; labs have 18.2 and 20.2. Three configurations by three
scenarios, deployed by the embedded engine, natively.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest
import yaml

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
_PAGE = ROOT / "docs" / "versions.md"
_BEGIN, _END = "<!-- matrix -->", "<!-- end -->"
_LAB = [sys.executable, "-c", "from cbt_crypto.cli import cbt_crypto; cbt_crypto()", "lab"]
#: Release of the lab; None is this machine's.
RELEASES: tuple[Optional[str], ...] = (None, "reef", "tentacle")
CONFIGURATIONS: dict[str, Any] = {
    "no overlay": {},
    "secure_messenger": {"secure_messenger": {}},
    "cpuset": {"cpuset": {"osd_cores": 1}},
}
_LOAD = {"vol_size": 64, "time": 4, "ramp": 1, "op_size": 4096, "mode": "randread"}
SCENARIOS = {
    "rbd_multi_client": {**_LOAD, "volumes_per_client": 2, "iodepth": 8},
    "rbd_single_client": {**_LOAD, "iodepth": 8},
    "rbd_single_client_sync": _LOAD,
}


def campaign(path: Path, host: str) -> Path:
    cluster = {
        "head": host, "clients": [host], "osds": [host], "mgrs": {host: {"x": None}},
        "mons": {host: {"a": "127.0.0.1:13341" if host == "localhost" else host}},
        "osds_per_node": 2, "osd_file_size": "4G", "tmp_dir": f"{path}/cluster",
        "pool_profiles": {"rbd": {"pg_size": 16, "pgp_size": 16, "replication": 2}},
        "settings": {"osd_memory_target": "900M"}, "rebuild": "needed",
        "control": False,
        "configurations": CONFIGURATIONS,
    }  # fmt: skip
    file = path / "releases.yaml"
    file.write_text(yaml.safe_dump({"cluster": cluster, "benchmarks": SCENARIOS}, sort_keys=False))
    return file


@pytest.fixture(params=RELEASES, ids=lambda release: release or "here")
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The archive of the campaign on the release."""
    found = tmp_path / "archive"
    if request.param is None:
        run([sys.executable, str(ROOT / "cbt.py"), "-a", found, campaign(tmp_path, "localhost")])
        yield found
        return
    if os.geteuid() != 0:
        pytest.skip("namespace nodes need root")
    name = f"release-test-{os.getpid()}"
    shape = ["--kind", "namespace", "--ceph", request.param, "--nodes", "1", "--disks", "0"]
    run([*_LAB, "up", "--name", name, *shape])
    try:
        config = campaign(tmp_path, "node0")
        run([*_LAB, "run", "--name", name, config, "-a", found, "--no-report"])
    finally:
        run([*_LAB, "down", "--name", name])
    yield found


def run(command: list[Any]) -> None:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_every_cell_is_proved(archive: Path) -> None:
    cells = [json.loads(path.read_text()) for path in archive.glob("results/*/id-*/cell.json")]
    proofs = [json.loads(path.read_text()) for path in archive.glob("results/*/id-*/proof.json")]
    assert len(cells) == len(CONFIGURATIONS) * len(SCENARIOS)
    assert {cell["state"] for cell in cells} == {"finished"}
    assert all(proof["proved"] for proof in proofs)
    noted = json.loads((archive / "results/environment.json").read_text())
    (host,) = noted["hosts"].values()
    assert noted["auth"]["auth_service_cipher"] in ("aes", "aes256k")
    write(host, noted["auth"], {(c["configuration"], c["scenario"]) for c in cells})


def write(host: dict[str, Any], auth: dict[str, Any], seen: set[tuple[str, str]]) -> None:
    """Put the release's rows into the page's table, in the place of what they were."""
    release = host["versions"]["ceph"].removeprefix("ceph version ").split()[0]
    day = time.strftime("%Y-%m-%d", time.gmtime())
    rows = {
        f"| {release} | {host['os']} | {auth['auth_service_cipher']} | {name} | "
        + " | ".join(day if (name, scenario) in seen else "" for scenario in SCENARIOS)
        + " |"
        for name in CONFIGURATIONS
    }
    before, _, rest = _PAGE.read_text().partition(_BEGIN)
    table, _, after = rest.partition(_END)
    kept = {line for line in table.splitlines() if line.startswith("| ") and line[2].isdigit()}
    kept = {line for line in kept if not line.startswith(f"| {release} |")}
    head = f"| Ceph | system | cephx | overlay | {' | '.join(SCENARIOS)} |"
    rule = "| --- " * (4 + len(SCENARIOS)) + "|"
    lines = "\n".join(["", head, rule, *sorted(kept | rows), ""])
    _PAGE.write_text(f"{before}{_BEGIN}\n{lines}\n{_END}{after}")
