"""`cleanup --forget` left the claims in the notes of the hosts, and later campaigns obeyed them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cbt_crypto.cli import cbt_crypto
from cbt_crypto.engine.choice import embedded
from cbt_crypto.hosts.devices import destroy
from cbt_crypto.hosts.devices.identity_on_host import TAG
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.plan.file import Campaign, read_campaign
from cbt_crypto.plan.order import cells_of
from cbt_crypto.run import devices, journal
from cbt_crypto.run.journal import Journal
from cbt_crypto.run.locks import this_run

from .conftest import Bench, digest

pytestmark = pytest.mark.unit


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def campaign_on(bench: Bench, write_campaign: Callable[..., Path]) -> Callable[..., Campaign]:
    """A campaign on these devices, or on files."""

    def make(*paths: str) -> Campaign:
        cluster: dict[str, Any] = {
            "head": "localhost", "clients": ["localhost"], "osds": ["localhost"], "replication": 1,
            "mons": {"head": ..., "localhost": {"a": "127.0.0.1:13377"}},
            "mgrs": {"head": ..., "localhost": {"x": None}},
            "tmp_dir": bench.tmp_dir, "osds_per_node": 1,
        }  # fmt: skip
        cluster |= {"osd_devices": list(paths)} if paths else {"osd_file_size": "1G"}
        return read_campaign(write_campaign(cluster=cluster))

    return make


def begin(bench: Bench, campaign: Campaign, archive: Path, run: str) -> None:
    """What a run does before its first deployment, and what that does first."""
    remote = Remote(embedded().common, bench.tmp_dir)
    found = devices.read_identities(remote, campaign, cells_of(campaign))
    dead = {**this_run(archive), "pid": 1, "started": 1}
    Journal(archive, run).begin(campaign, dead, embedded(), found)
    remote.run(devices.recording(bench.tmp_dir, found), "note")


def killed(bench: Bench, campaign: Campaign, archive: Path, device: str) -> None:
    begin(bench, campaign, archive, "r1")
    bench.good(destroy.claim(bench.tmp_dir, [device]))
    bench.good(destroy.proved(bench.tmp_dir, [f"make_ext4 {device} {destroy.LABEL}"]))


def used_by_its_owner(device: str) -> None:
    with open(device, "r+b") as file:
        file.seek(32 << 20)
        file.write(b"thesis" * 1000)
        os.fsync(file.fileno())


def cleanup(*words: Any) -> Result:
    return CliRunner().invoke(cbt_crypto, ["cleanup", *map(str, words)])


@pytest.mark.parametrize("other", [False, True])
def test_what_its_owner_uses_since_is_not_emptied(
    bench: Bench, campaign_on: Callable[..., Campaign], archive: Path, other: bool
) -> None:
    """The next campaign in the same tmp_dir wiped it, although it named other devices, or none."""
    disk, device = bench.disk("disk")
    killed(bench, campaign_on(device), archive, device)
    done = cleanup("--forget", "--yes", archive)
    assert done.exit_code == 0 and len(done.output.splitlines()) == 1
    used_by_its_owner(device)
    before = digest(disk)
    begin(bench, campaign_on(*[bench.disk("another")[1]] * other), archive, "r2")
    bench.good(destroy.empty_all(bench.tmp_dir))
    assert digest(disk) == before
    begin(bench, campaign_on(device), archive, "r3")
    bench.good(destroy.empty_all(bench.tmp_dir))
    assert "carries data (ext4)" in bench.refused(destroy.claim(bench.tmp_dir, [device]))
    assert digest(disk) == before


def test_a_host_that_cannot_be_told_is_named(
    bench: Bench, campaign_on: Callable[..., Campaign], archive: Path
) -> None:
    """It is given up all the same; what it still claims is nobody's for the next campaign."""
    disk, device = bench.disk("disk")
    killed(bench, campaign_on(device), archive, device)
    os.chown(bench.tmp_dir, 65534, 65534)
    done = cleanup("--forget", "--yes", archive)
    assert done.exit_code == 0, done.output
    assert f"localhost: {bench.tmp_dir}/devices.json still claims devices" in done.output
    assert "belongs to uid 65534" in done.output and len(done.output.splitlines()) == 2
    assert journal.own_left_over(archive) == []
    os.chown(bench.tmp_dir, 0, 0)
    used_by_its_owner(device)
    before = digest(disk)
    begin(bench, campaign_on(), archive, "r2")
    bench.good(destroy.empty_all(bench.tmp_dir))
    assert digest(disk) == before


def test_a_drive_that_died_keeps_no_later_campaign_from_it(
    bench: Bench, campaign_on: Callable[..., Campaign], archive: Path
) -> None:
    """It said to give it up; the next campaign said so too, with nothing to give up."""
    _, device = bench.disk("disk")
    killed(bench, campaign_on(device), archive, device)
    bench.detach(device)
    assert "cleanup --forget" in bench.refused(destroy.empty_all(bench.tmp_dir))
    assert cleanup("--forget", "--yes", archive).exit_code == 0
    bench.good(destroy.empty_all(bench.tmp_dir))


def test_what_is_still_tracked_is_emptied(
    bench: Bench, campaign_on: Callable[..., Campaign], archive: Path
) -> None:
    disk, device = bench.disk("disk")
    killed(bench, campaign_on(device), archive, device)
    begin(bench, campaign_on(bench.disk("another")[1]), archive.with_name("other"), "r2")
    bench.good(destroy.empty_all(bench.tmp_dir))
    assert disk.read_bytes().startswith(TAG)


def test_a_run_of_another_machine_is_cleaned_up_from_there(
    bench: Bench, campaign_on: Callable[..., Campaign], archive: Path
) -> None:
    """Its state is there: here its claims are dropped, and its own cleanup brings them back."""
    disk, device = bench.disk("disk")
    killed(bench, campaign_on(device), archive, device)
    (lost,) = journal.own_left_over(archive)
    journal.forget("r1")
    begin(bench, campaign_on(device), archive.with_name("other"), "r2")
    bench.good(destroy.empty_all(bench.tmp_dir))
    assert not disk.read_bytes().startswith(TAG)
    (script,) = devices.restoring(bench.tmp_dir, lost.devices).values()
    bench.good(f"{script}\n{destroy.empty_all(bench.tmp_dir)}")
    assert disk.read_bytes().startswith(TAG)
