"""`discard: true`: our own devices are emptied of all blocks, and no others. Contents compared."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from cbt_crypto.hosts.devices import destroy
from cbt_crypto.hosts.devices.identity_on_host import TAG, TAG_BYTES
from cbt_crypto.hosts.site import Osd, Site

from .conftest import Bench, digest, flush, run

pytestmark = pytest.mark.unit


def fill(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(os.urandom(path.stat().st_size))
        os.fsync(file)


def test_a_claimed_device_holds_nothing_but_the_tag(bench: Bench) -> None:
    image, device = bench.disk("mine")
    fill(image)
    bench.begin(device, wipe=True)
    bench.good(destroy.claim(bench.tmp_dir, [device]))
    run("blockdev", "--flushbufs", device)
    assert image.read_bytes()[8 << 20 :].strip(b"\0"), "without the key nothing is discarded"
    bench.good(destroy.claim(bench.tmp_dir, [device], discard=True))
    flush(image)
    left = image.read_bytes()
    assert left.startswith(TAG)
    assert left[TAG_BYTES:].count(0) == len(left) - TAG_BYTES
    assert image.stat().st_blocks * 512 < 1 << 20, "the file is a hole, so blocks were given back"
    (note,) = bench.notes().values()
    assert note["claimed"] and note["working"] == ""
    # and what it is claimed for goes on
    bench.good(destroy.proved(bench.tmp_dir, [f"make_ext4 {device} label"]))


@pytest.mark.parametrize("wipe", [False, True])
def test_a_path_that_leads_to_another_disk_since(bench: Bench, wipe: bool) -> None:
    _, place = bench.disk("mine")
    other, elsewhere = bench.disk("other")
    fill(other)
    bench.begin(place, wipe=wipe)
    bench.good(destroy.claim(bench.tmp_dir, [place]))
    bench.detach(place)
    bench.detach(elsewhere)
    bench.attach(other, place)
    before = digest(other)
    bench.refused(destroy.claim(bench.tmp_dir, [place], discard=True))
    assert digest(other) == before


def test_foreign_data_stay_without_wipe(bench: Bench) -> None:
    image, device = bench.disk("theirs")
    run("mkfs.ext4", "-q", str(image))
    bench.begin(device)
    before = digest(image)
    said = bench.refused(destroy.claim(bench.tmp_dir, [device], discard=True))
    assert "carries data (ext4)" in said
    assert digest(image) == before


def test_data_that_came_after_the_claim_stay(bench: Bench) -> None:
    """Between the two steps of one script somebody else may have made a file system."""
    image, device = bench.disk("mine")
    bench.begin(device)
    text = destroy.claim(bench.tmp_dir, [device], discard=True)
    call = f"\ndiscard {device}"
    assert text.count(call) == 1
    intruded = text.replace(call, f"\nmkfs.ext4 -q {device}{call}")
    said = bench.refused(intruded)
    assert "carries data" in said or "not claimed" in said
    assert run("blkid", "-p", "-s", "TYPE", "-o", "value", str(image)) == "ext4"


def test_a_device_that_cannot_fails_the_deployment(bench: Bench, without_discards: Path) -> None:
    """Should the check have been passed over: nothing is measured on half of it."""
    image = without_discards / "disk"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    device = bench.attach(image)
    bench.begin(device)
    said = bench.refused(destroy.claim(bench.tmp_dir, [device], discard=True))
    assert "not supported" in said
    bench.good(destroy.claim(bench.tmp_dir, [device]))


def test_a_device_that_seems_empty_by_samples_alone(bench: Bench) -> None:
    """Data between the samples were discarded without wipe."""
    image, device = bench.disk("big", mib=300)
    with open(device, "r+b") as file:
        file.seek(99 << 20)
        file.write(os.urandom(2 << 20))
    osd = Osd(0, "localhost", device, "/d/0", "/s", "/p")
    site = Site(bench.tmp_dir, "/c", "localhost", ("localhost",), (osd,), discard=True)

    def judged(site: Site, wipe: bool) -> str:
        (guard,) = destroy.device_guards(site, wipe)
        return guard.judge(bench.good(guard.script)) or "ok"

    assert "only samples of it were looked at" in judged(site, False)
    assert judged(site, True) == judged(replace(site, discard=False), False) == "ok"
    before = digest(image)
    bench.begin(device)
    said = bench.refused(destroy.claim(bench.tmp_dir, [device], discard=True))
    assert "was looked at in samples alone; nothing was discarded" in said
    assert digest(image) == before
    bench.begin(device, wipe=True)
    bench.good(destroy.claim(bench.tmp_dir, [device], discard=True))
    bench.good(destroy.empty_all(bench.tmp_dir))
    assert judged(site, False) == "ok", "it has our tag"
    bench.begin(device)
    bench.good(destroy.claim(bench.tmp_dir, [device], discard=True))


def test_a_small_device_is_looked_at_in_whole(bench: Bench) -> None:
    image, device = bench.disk("small")
    with open(device, "r+b") as file:
        file.seek((20 << 20) + (100 << 10))
        file.write(os.urandom(64 << 10))
    before = digest(image)
    bench.begin(device)
    said = bench.refused(destroy.claim(bench.tmp_dir, [device], discard=True))
    assert "data without a name" in said
    assert digest(image) == before
