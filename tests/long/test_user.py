"""With `user: ceph` daemons run as those of packages do: by the proof, and by ps(1) meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from real_labs import namespaces, running_lab

from cbt_crypto.lab import access

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NAME = f"user-test-{os.getpid()}"
# Whoever runs daemons as that user gave it a shell, keys, and a directory to work in.
PREPARE = """
usermod -s /bin/sh -p '*' ceph
install -d -o ceph -g ceph -m 700 /var/lib/ceph/.ssh
install -o ceph -g ceph -m 600 /root/.ssh/authorized_keys /var/lib/ceph/.ssh
chown ceph: /var/lib/ceph
install -d -o ceph -g ceph /srv/campaign
cat > /srv/campaign/fio <<'END'
#!/bin/sh
ps -e -o user=,comm= | grep ' ceph-' >> /srv/campaign/seen
exec fio "$@"
END
chmod 755 /srv/campaign/fio
"""
CAMPAIGN = {
    "cluster": {
        "user": "ceph", "tmp_dir": "/srv/campaign/run",
        "head": "node0", "clients": ["node0"], "osds": ["node0"],
        "mons": {"node0": {"a": "node0"}}, "mgrs": {"node0": {"x": None}},
        "osds_per_node": 2, "osd_file_size": "4G",
        "pool_profiles": {"rbd": {"pg_size": 8, "pgp_size": 8, "replication": 2}},
        "settings": {"osd_memory_target": "900M"}, "rebuild": "needed", "control": False,
        "configurations": {"As packaged": {}, "Secure messenger": {"secure_messenger": {}}},
    },
    "benchmarks": {
        "rbd_single_client": {
            "vol_size": 32, "iodepth": 4, "time": 4, "ramp": 0, "op_size": 4096,
            "cmd_path": "/srv/campaign/fio",
        }
    },
}  # fmt: skip


def test_all_daemons_are_ceph_s(tmp_path: Path) -> None:
    config, archive = tmp_path / "user.yaml", tmp_path / "archive"
    config.write_text(yaml.safe_dump(CAMPAIGN, sort_keys=False))
    with running_lab(NAME, namespaces(1)) as lab:
        access.run(lab, lab.head, PREPARE)
        words = ["lab", "run", str(config), "-a", str(archive), "--name", NAME]
        command = [sys.executable, "-m", "cbt_crypto", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
        assert done.returncode == 0, done.stdout + done.stderr
        seen = {
            tuple(line.split())
            for line in access.run(lab, lab.head, "cat /srv/campaign/seen").splitlines()
        }
        uid = int(access.run(lab, lab.head, "id -u ceph"))
    assert seen == {("ceph", "ceph-mon"), ("ceph", "ceph-mgr"), ("ceph", "ceph-osd")}
    proofs = [json.loads(path.read_text()) for path in archive.glob("results/0*/id-*/proof.json")]
    assert len(proofs) == 2
    for proof in proofs:
        assert proof["proved"]
        (service,) = (one for one in proof["overlays"] if one["overlay"] == "osd_service")
        assert "and run as ceph" in service["reason"]
        assert {osd["user_id"] for osd in service["evidence"].values()} == {uid}
