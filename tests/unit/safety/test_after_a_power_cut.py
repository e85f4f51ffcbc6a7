"""tmp_dir was in memory and is gone with every note; the disks and TuneD are as they were."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cbt_crypto.cli import cbt_crypto
from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.cluster_overlays.tuned import Tuned
from cbt_crypto.engine.choice import embedded
from cbt_crypto.hosts import directories
from cbt_crypto.hosts.devices import destroy
from cbt_crypto.hosts.devices.identity_on_host import TAG
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.plan.file import Campaign, read_campaign
from cbt_crypto.plan.layout import site_of
from cbt_crypto.plan.order import cells_of
from cbt_crypto.run import devices, journal
from cbt_crypto.run import journal as ways_back
from cbt_crypto.run.journal import Journal
from cbt_crypto.run.locks import this_run

from .conftest import Bench, digest

pytestmark = pytest.mark.unit

#: `tuned-adm`, which keeps its state where `$TUNED` says, as TuneD does in /etc.
_TUNED = """
case $1 in
    active) echo "Current active profile: $(cat "$TUNED")" ;;
    profile) shift; echo "$*" > "$TUNED" ;;
esac
"""
LABEL = b"bluestore block device\n%s\n"


@pytest.fixture
def tuned(tmp_path: Path, programs: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """TuneD with a profile of the host's own, and its overlay alone."""
    programs("tuned-adm", _TUNED)
    state = tmp_path / "etc-tuned"
    state.write_text("balanced\n")
    monkeypatch.setenv("TUNED", str(state))
    before = dict(OVERLAYS)
    OVERLAYS.clear()
    OVERLAYS["tuned"] = Tuned
    yield state
    OVERLAYS.clear()
    OVERLAYS.update(before)


@pytest.fixture
def campaign(bench: Bench, write_campaign: Callable[..., Path], tuned: Path) -> Campaign:
    _, place = bench.disk("disk")
    cluster = {
        "head": "localhost", "clients": ["localhost"], "osds": ["localhost"], "replication": 1,
        "mons": {"head": ..., "localhost": {"a": "127.0.0.1:13377"}},
        "mgrs": {"head": ..., "localhost": {"x": None}},
        "tmp_dir": bench.tmp_dir, "osd_devices": [place], "osds_per_node": 1,
        "configurations": {"Default": {}, "Fast": {"tuned": {"profile": "throughput"}}},
    }  # fmt: skip
    return read_campaign(write_campaign(cluster=cluster))


def killed_run(bench: Bench, campaign: Campaign, archive: Path) -> None:
    """What a run does up to the moment at which the power goes."""
    remote, site = Remote(embedded().common, bench.tmp_dir), site_of(campaign.cluster)
    found = devices.read_identities(remote, campaign, cells_of(campaign))
    journal = Journal(archive, "r1")
    dead = {**this_run(archive), "pid": 1, "started": 1}
    journal.begin(campaign, dead, embedded(), found)
    remote.run(devices.recording(bench.tmp_dir, found), "note")
    journal.keep_ways_back(ways_back.ask(remote, site, campaign))
    for path, note in found["localhost"].items():
        bench.good(destroy.claim(bench.tmp_dir, [path]))
        bench.good(destroy.format_osds(bench.tmp_dir, {path: ":"}))
        write(path, LABEL % note["uuid"].encode())
    (overlay,) = campaign.configurations["Fast"]
    remote.run(overlay.after_osds(site), "tune")
    shutil.rmtree(bench.tmp_dir)


def write(path: str, data: bytes) -> None:
    with open(path, "r+b") as device:
        device.write(data.ljust(4096, b"\0"))
        os.fsync(device.fileno())


def cleanup(*words: Any) -> Result:
    return CliRunner().invoke(cbt_crypto, ["cleanup", *map(str, words)])


def test_cleanup_finds_what_is_left(
    bench: Bench, campaign: Campaign, tuned: Path, tmp_path: Path
) -> None:
    killed_run(bench, campaign, tmp_path / "archive")
    assert tuned.read_text() == "throughput\n"
    done = cleanup("--yes", tmp_path / "archive")
    assert done.exit_code == 0, done.output
    assert tuned.read_text() == "balanced\n"
    assert (bench.folder / "disk").read_bytes().startswith(TAG)
    assert "was left as it is" not in done.output and not os.path.exists(bench.tmp_dir)
    assert f"localhost: {bench.tmp_dir} is gone; if its file system is not mounted" in done.output


def test_a_profile_that_somebody_chose_since_stays(
    bench: Bench, campaign: Campaign, tuned: Path, tmp_path: Path
) -> None:
    killed_run(bench, campaign, tmp_path / "archive")
    tuned.write_text("powersave\n")
    assert cleanup("--yes", tmp_path / "archive").exit_code == 0
    assert tuned.read_text() == "powersave\n"


def test_what_nobody_knows_is_said(
    bench: Bench, campaign: Campaign, tuned: Path, tmp_path: Path
) -> None:
    """The user's own state is gone as well: only the archive tells of the run."""
    killed_run(bench, campaign, tmp_path / "archive")
    journal.forget("r1")
    before = digest(bench.folder / "disk")
    done = cleanup("--foreign", "--yes", tmp_path / "archive")
    assert done.exit_code == 0, done.output
    assert "the TuneD profile throughput is in force, and nobody knows which" in done.output
    assert "still carries bluestore; nothing shows that it was that run's" in done.output
    assert tuned.read_text() == "throughput\n" and digest(bench.folder / "disk") == before


def test_the_label_of_somebody_else_s_osd_is_said(
    bench: Bench, campaign: Campaign, tuned: Path, tmp_path: Path
) -> None:
    killed_run(bench, campaign, tmp_path / "archive")
    (device,) = bench.attached
    write(device, LABEL % str(uuid.uuid4()).encode())
    before = digest(bench.folder / "disk")
    done = cleanup("--yes", tmp_path / "archive")
    assert "still carries bluestore" in done.output
    assert digest(bench.folder / "disk") == before


def test_an_array_of_several_devices(bench: Bench) -> None:
    """Its superblocks have the uuid of the device that was named last."""
    pairs = [bench.disk(name) for name in "ab"]
    places = [place for _, place in pairs]
    bench.begin(*places)
    notes = bench.notes()
    bench.good(destroy.claim(bench.tmp_dir, places))
    for _, place in pairs:
        bench.good(destroy.format_osds(bench.tmp_dir, {place: ":"}))
        write(place, LABEL % notes[places[1]]["uuid"].encode())
    shutil.rmtree(bench.tmp_dir)
    put_back = directories.make(bench.tmp_dir) + destroy.restore(bench.tmp_dir, notes)
    bench.good(put_back + "\n" + destroy.empty_all(bench.tmp_dir))
    assert all(file.read_bytes().startswith(TAG) for file, _ in pairs)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"x": 1}', '{"/dev/x": {}}', "\0" * 4096])
def test_damaged_notes_are_no_notes(bench: Bench, text: str) -> None:
    """Some were taken for none, so that a device of ours was left in silence."""
    disk, device = bench.disk("disk")
    bench.begin(device)
    bench.good(destroy.claim(bench.tmp_dir, [device]))
    before = digest(disk)
    (Path(bench.tmp_dir) / destroy.NOTES).write_text(text)
    for script in (destroy.empty_all(bench.tmp_dir), destroy.claim(bench.tmp_dir, [device])):
        said = bench.refused(script)
        assert "is damaged" in said and "Traceback" not in said
    assert digest(disk) == before


def test_what_was_never_claimed_is_not_emptied(bench: Bench) -> None:
    """Notes that are put back claimed all devices, and so what is behind an earlier run's tag."""
    disk, device = bench.disk("disk")
    bench.begin(device)
    bench.good(destroy.claim(bench.tmp_dir, [device]))
    bench.good(destroy.empty_all(bench.tmp_dir))
    bench.begin(device)
    (note,) = bench.notes().values()
    note["uuid"] = str(uuid.uuid4())
    shutil.rmtree(bench.tmp_dir)
    with open(device, "r+b") as file:
        file.seek(1 << 20)
        file.write(b"his" * 1_000_000)
    before = digest(disk)
    put_back = directories.make(bench.tmp_dir) + destroy.restore(bench.tmp_dir, {device: note})
    bench.good(put_back + "\n" + destroy.empty_all(bench.tmp_dir))
    assert digest(disk) == before


def test_what_was_claimed_and_measured_on_is_emptied(bench: Bench) -> None:
    """A drive without Ceph has nothing but the tag, which says by which run."""
    disk, device = bench.disk("disk")
    bench.begin(device)
    notes = bench.notes()
    bench.good(destroy.claim(bench.tmp_dir, [device]))
    with open(device, "r+b") as file:
        file.seek(1 << 20)
        file.write(b"measured with" * 100_000)
    shutil.rmtree(bench.tmp_dir)
    put_back = directories.make(bench.tmp_dir) + destroy.restore(bench.tmp_dir, notes)
    bench.good(put_back + "\n" + destroy.empty_all(bench.tmp_dir))
    assert disk.read_bytes().startswith(TAG) and not bench.notes()[device]["claimed"]
