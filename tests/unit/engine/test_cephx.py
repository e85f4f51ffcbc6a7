"""Keys as Ceph reads them."""

from __future__ import annotations

import base64
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest

from cbt_crypto.engine.embedded.keyring import keyring, new_key

pytestmark = pytest.mark.unit


def test_type_time_length_and_secret() -> None:
    before = time.time()
    raw = base64.b64decode(new_key(), validate=True)
    kind, seconds, nanoseconds, length = struct.unpack_from("<HIIH", raw)
    assert (kind, length, len(raw)) == (1, 16, 12 + 16)
    assert before - 1 < seconds + nanoseconds / 1e9 < time.time() + 1


def test_no_two_keys_are_the_same() -> None:
    keys = {base64.b64decode(new_key())[12:] for _ in range(200)}
    assert len(keys) == 200


def test_each_entity_has_its_capabilities() -> None:
    sections = keyring(["mon.", "client.admin", "mgr.x", "osd.3"])
    assert list(sections) == ["mon.", "client.admin", "mgr.x", "osd.3"]
    assert sections["mon."].splitlines()[0] == "[mon.]"
    assert '\tcaps mon = "allow *"' in sections["mon."].splitlines()
    assert '\tcaps mon = "allow profile osd"' in sections["osd.3"].splitlines()
    assert '\tcaps mon = "allow profile mgr"' in sections["mgr.x"].splitlines()
    admin = sections["client.admin"].splitlines()
    assert {line.split()[1] for line in admin if "caps" in line} >= {"mon", "osd", "mgr"}


@pytest.mark.skipif(shutil.which("ceph-authtool") is None, reason="ceph-authtool is not here")
def test_ceph_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "keyring"
    path.write_text("".join(keyring(["mon.", "osd.3"]).values()))
    argv = ["ceph-authtool", str(path), "--print-key", "--name", "osd.3"]
    printed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    assert f"key = {printed}" in path.read_text()
