"""`like: ceph-volume`, `sector_size: auto` and `high_priority`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any, Callable

import pytest
from pydantic import ValidationError

from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.luks.mapping import mapping_of
from cbt_crypto.cluster_overlays.luks.overlay import Luks
from cbt_crypto.cluster_overlays.stack import Stack, leftovers
from cbt_crypto.hosts.devices import lvm_and_md
from cbt_crypto.hosts.site import Osd, Site

pytestmark = pytest.mark.unit

LIKE = Luks(like="ceph-volume")
ON_FLASH = "--perf-no_read_workqueue --perf-no_write_workqueue"
TABLE = "0 8 crypt aes-xts-plain64 :64:logon:x 0 253:0 32768 3 allow_discards"
FLASH_TABLE = f"{TABLE.replace(' 3 ', ' 4 ')} no_read_workqueue no_write_workqueue"

Shell = Callable[[str], str]


@pytest.mark.parametrize(
    "option",
    [
        {"no_read_workqueue": True},
        {"allow_discards": False},
        {"hw_opal": "only"},
    ],
)
def test_what_ceph_volume_decides_cannot_be_named_beside_it(option: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="leave out"):
        Luks.model_validate({"like": "ceph-volume", **option})


def test_what_20_2_passes_on_to_cryptsetup_is_named_beside_it(
    site_of: Callable[..., Site], osd: Callable[..., Osd]
) -> None:
    free = Luks(like="ceph-volume", cipher="serpent-xts-plain64", sector_size=4096)
    volume = "/dev/cbt-crypto-0123456789/osd.0-data"
    shared = site_of(osd(0, "node2", device=volume, disk="/dev/sda"))
    script = free.before_osds(shared)["node2"]
    assert "--cipher serpent-xts-plain64" in script and "--sector-size 4096" in script
    table = FLASH_TABLE.replace("aes", "serpent").replace(" 4 allow", " 5 allow")
    for made, proved in ((f"{table} sector_size:4096", True), (FLASH_TABLE, False)):
        look = _facts(shared.osds[0], made, "0", VOLUME)
        verdict = free.judge(shared, look, look)
        assert verdict.proved == proved, verdict.reason


def test_it_is_laid_over_volumes(two: Site) -> None:
    script = LIKE.before_osds(two)["node0"]
    for osd, part, device in (
        (two.osds[0], "data", two.osds[0].device),
        (two.osds[0], "db", str(two.osds[0].db_device)),
        (two.osds[1], "data", two.osds[1].device),
    ):
        group = lvm_and_md.group_name("/tmp/cbt/ceph", "node0", device)
        assert f"group {group} {device}" in script
        name = mapping_of(osd, part, "").name
        assert f"make {name} /dev/{group}/osd.{osd.id}-{part} &" in script
    assert "--sector-size" not in script
    assert {need.name for need in LIKE.requirements(two)} == {"dm-crypt", "lvm2"}


def test_a_volume_that_is_there_already_carries_the_header_itself(
    site_of: Callable[..., Site], osd: Callable[..., Osd]
) -> None:
    volume = "/dev/cbt-crypto-0123456789/osd.0-data"
    shared = site_of(osd(0, "node2", device=volume, disk="/dev/sda"))
    script = LIKE.before_osds(shared)["node2"]
    assert "vgcreate" not in script
    assert f"{mapping_of(shared.osds[0], 'data', '').name} {volume} &" in script


@pytest.mark.parametrize(("rotational", "more"), [("0", f" {ON_FLASH}"), ("1", "")])
def test_no_work_queues_on_flash_alone(
    site_of: Callable[..., Site], osd: Callable[..., Osd], tools: Any, sh: Shell,
    rotational: str, more: str,
) -> None:  # fmt: skip
    volume = "/dev/cbt-crypto-0123456789/osd.0-data"
    shared = site_of(osd(0, "node2", device=volume, disk="/dev/sda"))
    tools.make("lsblk", f"echo '   {rotational}'")
    sh(tools.script(LIKE.before_osds(shared)["node2"]))
    opened = next(" ".join(call) for call in tools.calls if call[:2] == ["cryptsetup", "open"])
    assert opened.startswith(f"cryptsetup open --type luks --allow-discards{more} --key-file ")


@pytest.mark.parametrize(
    ("rotational", "table", "refreshes"),
    [("0", FLASH_TABLE, 0), ("1", FLASH_TABLE, 1), ("0", TABLE, 1), ("1", TABLE, 0)],
)
def test_a_refresh_knows_what_flash_gets(
    site_of: Callable[..., Site], osd: Callable[..., Osd], tools: Any, sh: Shell,
    rotational: str, table: str, refreshes: int,
) -> None:  # fmt: skip
    shared = site_of(osd(0, "node2", device="/dev/cbt-crypto-0/osd.0-data", disk="/dev/sda"))
    tools.make("lsblk", f"echo {rotational}")
    tools.make("dmsetup", f"echo {table}")
    sh(tools.script(LIKE.after_osds(shared)["node2"]))
    assert sum(call[:2] == ["cryptsetup", "refresh"] for call in tools.calls) == refreshes


def _facts(osd: Osd, table: str, rotational: str, below: Mapping[str, str]) -> dict[str, str]:
    layers = [
        {
            "device": "253:1", "name": "dm-1", "rotational": rotational, "table": table,
            "mapping": mapping_of(osd, "data", "").name, "uuid": "CRYPT-LUKS2-x",
        },
        {"device": "253:0", "name": "dm-0", "rotational": rotational, **below},
        {"device": "8:0", "name": "sda", "rotational": rotational},
    ]  # fmt: skip
    found = {"running": True, "named": {"data": "253:0"}, "opened": {"253:1": layers}}
    return {osd.host: json.dumps({f"osd.{osd.id}": found})}


VOLUME = {"mapping": "vg-lv", "uuid": "LVM-abc", "table": "0 9 linear 8:0 2048"}
NO_VOLUME = {"mapping": "x", "uuid": "mpath-abc", "table": "0 9 multipath 8:0"}


@pytest.mark.parametrize(
    ("table", "rotational", "below", "fault"),
    [
        (FLASH_TABLE, "0", VOLUME, None),
        (f"{FLASH_TABLE} sector_size:4096", "0", VOLUME, None),
        (TABLE, "1", VOLUME, None),
        (TABLE, "0", VOLUME, "has flags allow_discards and not allow_discards no_read_workqueue"),
        (FLASH_TABLE, "1", VOLUME, "no_write_workqueue and not allow_discards"),
        (FLASH_TABLE, "0", NO_VOLUME, "is not on a logical volume"),
    ],
)
def test_proof(
    site_of: Callable[..., Site], osd: Callable[..., Osd],
    table: str, rotational: str, below: Mapping[str, str], fault: Any,
) -> None:  # fmt: skip
    one = osd(0, "node2")
    facts = _facts(one, table, rotational, below)
    verdict = LIKE.judge(site_of(one), facts, facts)
    assert verdict.proved == (fault is None), verdict.reason
    if fault is None:
        assert verdict.reason == "1 of 1 OSDs are on dm-crypt as ceph-volume makes it"
    else:
        assert fault in verdict.reason


def test_it_is_recognised_on_somebody_elses_cluster(
    site_of: Callable[..., Site], osd: Callable[..., Osd]
) -> None:
    theirs = osd(0, "node2", is_existing=True)
    facts = _facts(theirs, FLASH_TABLE, "0", VOLUME)
    assert LIKE.judge(site_of(theirs), facts, facts).proved
    bare = _facts(theirs, FLASH_TABLE, "0", NO_VOLUME)
    assert not LIKE.judge(site_of(theirs), bare, bare).proved


@pytest.mark.parametrize("encrypted", [(), ("data",), ("db",), ("data", "db")])
@pytest.mark.parametrize("claimed", [(), ("data",), ("db",), ("data", "db")])
def test_data_and_database_of_somebody_elses_osd_are_proved_apart(
    site_of: Callable[..., Site], osd: Callable[..., Osd],
    encrypted: tuple[str, ...], claimed: tuple[str, ...],
) -> None:  # fmt: skip
    """Each on volumes of its own, with dm-crypt above them where it is encrypted."""
    theirs = osd(0, "node2", is_existing=True, device="/dev/dm-0", db_device="/dev/dm-1")
    opened = {}
    for number, part in enumerate(("data", "db")):
        volume = {"device": f"253:{number}", "name": f"dm-{number}", "mapping": f"ceph-osd-{part}"}
        crypt = {"device": f"254:{number}", "name": f"dm-1{number}", "mapping": part}
        layers = [{**volume, "uuid": "LVM-x", "table": "0 8 linear 8:0 2048", "rotational": "0"}]
        if part in encrypted:
            table = TABLE.replace("253:0", f"253:{number}")
            layers = [{**crypt, "uuid": "CRYPT-LUKS2-x", "table": table}, *layers]
        opened[layers[0]["device"]] = layers
    named = dict(zip(("data", "db"), opened))
    facts = {"osd.0": {"running": True, "named": named, "opened": opened}}
    looks = {"node2": json.dumps(facts)}
    overlay = Luks(devices=list(claimed)) if claimed else Luks.absent()
    verdict = overlay.judge(site_of(theirs), looks, looks)
    assert verdict.proved == (claimed == encrypted), verdict


def test_taking_down_removes_the_volumes_after_the_mappings(two: Site) -> None:
    down = LIKE.take_down(two)["node0"]
    assert down.index("luksErase") < down.index("vgremove")
    assert "vgremove" not in Luks().take_down(two)["node0"]


def test_the_volumes_go_before_another_configuration_looks_at_the_disks(two: Site) -> None:
    """A disk that still carries a group is in use, and cannot be emptied."""
    stacks = [Stack([]), Stack([Luks()]), Stack([LIKE])]
    device = two.osds[1].device
    group = lvm_and_md.group_name("/tmp/cbt/ceph", "node0", device)
    for order in (stacks, stacks[::-1]):
        down = leftovers(order, two)["node0"]
        on_volume = down.index(f"/dev/{group}")
        name = mapping_of(two.osds[1], "data", "").name
        assert on_volume < down.index(f"{name} {device}")


def test_transitions() -> None:
    assert LIKE.transition_to(Luks()) == Transition.REBUILD
    assert Luks(sector_size="auto").transition_to(Luks()) == Transition.REBUILD
    assert Luks(high_priority=True).transition_to(Luks()) == Transition.LIVE


def test_auto_leaves_the_sectors_to_cryptsetup(two: Site) -> None:
    assert "--sector-size" not in Luks(sector_size="auto").before_osds(two)["node0"]
    (need,) = Luks(sector_size="auto").requirements(two)
    assert getattr(need, "options", None) == ()


OLD = "has cryptsetup\nhas dmsetup\nhas blkid\nhas wipefs\ncrypt v1.28.0\nkernel 6.12\non tmpfs\n"


def test_cryptsetup_is_asked_what_it_knows(two: Site) -> None:
    (need,) = Luks(high_priority=True).requirements(two)
    knows = subprocess.run(
        ["cryptsetup", "--help"], capture_output=True, text=True, check=True
    ).stdout
    flags = [w for line in knows.splitlines() for w in line.split() if w.startswith("--perf-")]
    told = "".join(f"knows {flag.removeprefix('--perf-')}\n" for flag in flags)
    said = need.judge(f"{OLD}cryptsetup 2.9.0\n{told}")
    if "--perf-high_priority" in flags:
        assert said is None
    else:
        assert str(said).startswith("high_priority is none of the options of its cryptsetup, 2.9.0")
    assert need.judge(f"{OLD}cryptsetup 2.8.0\n{told}knows high_priority\n") is None
    old_kernel = OLD.replace("1.28", "1.25")
    said = need.judge(f"{old_kernel}cryptsetup 2.8.0\nknows high_priority\n")
    assert "high_priority needs dm-crypt 1.26.0 (Linux 6.10)" in str(said)
