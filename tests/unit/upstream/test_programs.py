"""The programs that upstream starts: real shells run them, with stand-ins for Ceph's and fio."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cbt_crypto.archive.files import DOCUMENT_LIMIT
from cbt_crypto.engine.upstream import cell
from cbt_crypto.engine.upstream.execution import Names, endings, install, read_notes
from cbt_crypto.hosts.devices import destroy
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.layout import ceph_dir, site_of

pytestmark = pytest.mark.unit


class Host:
    def __init__(self, campaign: Campaign) -> None:
        self.base = Path(ceph_dir(campaign.cluster))
        (self.base / "log").mkdir(parents=True)
        scripts = install(
            site_of(campaign.cluster), str(self.base),
            Names({"ceph": "ceph", "rbd": "rbd"}, {"fio": "fio", "rados": "rados"},
                  "ceph-mon", "ceph-mgr", "ceph-osd"),
            lambda osd, command: f"WRAPPED={osd.id} {command}",
            lambda host, command: f"CLIENT={host} {command}",
            lambda osd: osd.device,
        )  # fmt: skip
        subprocess.run(["sh", "-euc", scripts["o0"]], check=True)

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.base / "bin" / name), *arguments],
            check=False, capture_output=True, text=True,
        )  # fmt: skip

    def notes(self) -> list[tuple[int, str, str]]:
        read = ["sh", "-euc", f"SUDO=\n{read_notes(str(self.base))}"]
        done = subprocess.run(read, check=True, capture_output=True, text=True)
        return [(end.status, end.program, end.words) for end in endings({"o0": done.stdout})]


@pytest.fixture
def host(
    campaign_of: Callable[..., Campaign], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Host:
    agrees = f'prove() {{ echo "$1 $2 $3" >> {tmp_path}/proved; }}\n'
    monkeypatch.setattr(destroy, "proof", lambda tmp_dir: agrees)
    return Host(campaign_of(cluster={"tmp_dir": f"{tmp_path}/own", "osds_per_node": 2}))


_TELL = 'echo "$CEPH_CONF|$CBT_CRYPTO_MARK|$WRAPPED$CLIENT|$*"'


def test_they_find_the_cluster_and_carry_the_mark(
    host: Host, programs: Callable[[str, str], Path], tmp_path: Path
) -> None:
    programs("ceph", _TELL)
    done = host.run("ceph", "osd", "create", "a b")
    own = f"{tmp_path}/own"
    assert done.stdout == f"{own}/ceph/ceph.conf|{own}@o0||osd create a b\n"
    assert host.notes() == []


def test_what_fails_is_noted_once(host: Host, programs: Callable[[str, str], Path]) -> None:
    programs("rbd", "exit 5")
    assert host.run("rbd", "create", "x").returncode == 5
    assert host.notes() == [(5, "rbd", "create x")]
    assert host.notes() == []


def test_clients_are_wrapped_and_their_end_is_always_noted(
    host: Host, programs: Callable[[str, str], Path]
) -> None:
    programs("fio", _TELL)
    assert "|o0|--name=x\n" in host.run("fio", "--name=x").stdout
    assert host.notes() == [(0, "fio", "--name=x")]
    # Where nobody else can have fio print its figures so far, as results.
    programs("fio", 'echo "$TMPDIR"')
    assert host.run("fio", "--name=x").stdout == f"{host.base}\n"


def test_a_daemon_s_last_words_come_with_the_note(
    host: Host, programs: Callable[[str, str], Path]
) -> None:
    programs("ceph-mon", "echo starting; echo no room >&2; exit 1")
    assert host.run("ceph-mon", "-i", "a").returncode == 1
    assert host.notes() == [(1, "ceph-mon", "-i a: starting no room ")]


def test_an_osd_starts_as_overlays_have_it_and_is_made_as_upstream_has_it(
    host: Host, programs: Callable[[str, str], Path], tmp_path: Path
) -> None:
    programs("ceph-osd", _TELL)
    own = f"{tmp_path}/own/ceph"
    assert host.run("ceph-osd", "-c", "x", "-i", "1", "--mkfs", "--osd-uuid", "u").returncode == 0
    assert host.run("ceph-osd", "-c", "x", "-i", "1", "--pid-file=y").returncode == 0
    made, started = (host.base / "log" / "ceph-osd.out").read_text().splitlines()
    assert made.endswith("||-c x -i 1 --mkfs --osd-uuid u")
    proved = (tmp_path / "proved").read_text().splitlines()
    device = "/dev/disk/by-partlabel/osd-device-1-data"
    assert proved == [f"ready {device} bluestore", f"share {device} u"]
    assert started.endswith(f"|1|-c {own}/ceph.conf -i 1 --pid-file={own}/run/osd.1.pid")
    assert host.run("ceph-osd", "-i", "7").returncode == 2, "an OSD of another host"


def test_a_status_that_is_no_number_is_no_ending() -> None:
    said = f"\u00b2 ceph x\n{'9' * 5000} ceph x\n1 ceph it failed\n"
    assert [(end.status, end.words) for end in endings({"o0": said})] == [(1, "it failed")]


def test_a_host_s_endless_line_is_no_work_for_days() -> None:
    """A pattern was looked for in 64 MiB of `--name=`, whose time grows with the square."""
    (end,) = endings({"o0": f"0 fio {'--name=' * 1_000_000}"})
    assert len(end.words) == 16384


@pytest.mark.parametrize("is_endless", [False, True])
def test_an_output_without_an_end_is_not_read(tmp_path: Path, is_endless: bool) -> None:
    """A client's tens of GB were read whole, twice, and the head ran out of memory."""
    (tmp_path / "output.0.c0").write_text('fio: said\n{\n  "jobs": []\n}\n')
    (tmp_path / "ceph_settings.out.c0").write_text("auth_key = secret\n")
    if is_endless:
        for path in tmp_path.iterdir():
            os.truncate(path, DOCUMENT_LIMIT + 1)
    cell.take_json(tmp_path)
    cell.mask(tmp_path)
    assert (tmp_path / "json_output.0.c0").exists() is not is_endless
    assert (tmp_path / "ceph_settings.out.c0").exists() is not is_endless
