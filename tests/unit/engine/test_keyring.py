"""Keys as Ceph reads them, in the form that its own tool makes."""

from __future__ import annotations

import base64
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest

from cbt_crypto.engine.embedded.daemons import KeyForm, ask_script, key_form

pytestmark = pytest.mark.unit

AES = KeyForm(1, 16)
AES256K = KeyForm(2, 32, in_monmap=True)

#: Printed by `ask_script` on each release: what ceph-authtool made, which no cluster ever used.
PRINTED = {
    "16.2.15": "AQAhTwJrhpn1DRAA9jO1pPCjO4UjDjYZ3Ea7bQ==",
    "18.2.7": "AQCrUgJrBa5uMRAAS/9vIe4wvSlGfKiB3vLVAg==",
    "20.2.4": "AgCrUgJrx/AYNiAAeV+xhSLcmXspMF20rq/dF1BN0jeg/wxoSulx1SWZfHo=\n@monmap-ciphers",
}


@pytest.mark.parametrize("form", [AES, AES256K])
def test_type_time_length_and_secret(form: KeyForm) -> None:
    before = time.time()
    raw = base64.b64decode(form.new_key(), validate=True)
    kind, seconds, nanoseconds, length = struct.unpack_from("<HIIH", raw)
    assert (kind, length, len(raw)) == (form.number, form.length, 12 + form.length)
    assert before - 1 < seconds + nanoseconds / 1e9 < time.time() + 1


def test_no_two_keys_are_the_same() -> None:
    keys = {base64.b64decode(AES256K.new_key())[12:] for _ in range(200)}
    assert len(keys) == 200


def test_each_entity_has_its_capabilities() -> None:
    sections = AES.keyring(["mon.", "client.admin", "mgr.x", "osd.3"])
    assert list(sections) == ["mon.", "client.admin", "mgr.x", "osd.3"]
    assert sections["mon."].splitlines()[0] == "[mon.]"
    assert '\tcaps mon = "allow *"' in sections["mon."].splitlines()
    assert '\tcaps mon = "allow profile osd"' in sections["osd.3"].splitlines()
    assert '\tcaps mon = "allow profile mgr"' in sections["mgr.x"].splitlines()
    admin = sections["client.admin"].splitlines()
    assert {line.split()[1] for line in admin if "caps" in line} >= {"mon", "osd", "mgr"}


@pytest.mark.parametrize(
    ("release", "form"), [("16.2.15", AES), ("18.2.7", AES), ("20.2.4", AES256K)]
)
def test_the_release_s_own_key_says_the_form(release: str, form: KeyForm) -> None:
    assert key_form(PRINTED[release]) == form


def test_monmaptool_is_told_the_cipher_where_it_knows_of_any() -> None:
    assert AES.monmap_options() == ""
    assert AES256K.monmap_options() == (
        "--auth-service-cipher aes256k --auth-allowed-ciphers aes256k "
        "--auth-preferred-cipher aes256k"
    )
    assert KeyForm(3, 64, in_monmap=True).monmap_options() == "", "a cipher of the future"


@pytest.mark.parametrize(
    "printed", ["", "ceph-authtool: not found", "AQ==", PRINTED["16.2.15"][:24]]
)
def test_what_is_no_key_is_said(printed: str) -> None:
    with pytest.raises(ValueError, match="ceph-authtool printed"):
        key_form(printed)


@pytest.mark.skipif(shutil.which("ceph-authtool") is None, reason="ceph-authtool is not here")
@pytest.mark.parametrize("cipher", [None, "aes"])
def test_ceph_reads_them(tmp_path: Path, cipher: str | None) -> None:
    asked = ["sh", "-euc", ask_script(cipher)]
    form = key_form(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
    path = tmp_path / "keyring"
    path.write_text("".join(form.keyring(["mon.", "osd.3"]).values()))
    argv = ["ceph-authtool", str(path), "--print-key", "--name", "osd.3"]
    printed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    assert f"key = {printed}" in path.read_text()
