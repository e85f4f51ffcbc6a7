"""The overlay's own scripts on the disks of a virtual machine, where dm-crypt is real.

A process that holds the devices open stands for each OSD.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any, Callable, Optional

import pytest

from cbt_crypto.cluster_overlays.base import Verdict
from cbt_crypto.cluster_overlays.luks.mapping import mappings_of
from cbt_crypto.cluster_overlays.luks.overlay import Luks
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.devices import destroy, traffic_on_host
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Osd, Site
from cbt_crypto.lab import access
from cbt_crypto.lab.shape import Lab
from cbt_crypto.run import devices
from cbt_crypto.run.cell import watch
from cbt_crypto.run.cell.watch import WatchRecord

pytestmark = pytest.mark.lab

MIB = 1 << 20
#: A disk of the lab.
DISK_MIB = 64
HOST = "node0"
DIR = "/tmp/luks-overlay-test"
ABSENT = Luks.absent()
FLAGS = (
    "allow_discards",
    "same_cpu_crypt",
    "submit_from_crypt_cpus",
    "no_read_workqueue",
    "no_write_workqueue",
)
HOLD = "{opens}; exec sleep infinity < /dev/null > /dev/null 2>&1"

Shell = Callable[[str], str]


def _osd(number: int, **changes: Any) -> Osd:
    disk = f"/dev/disk/by-partlabel/osd-device-{number}-data"
    data_dir = f"{DIR}/osd.{number}"
    return Osd(number, HOST, disk, data_dir, f"{data_dir}.asok", f"{data_dir}.pid", **changes)


SITE = Site(
    tmp_dir=DIR,
    conf=f"{DIR}/ceph.conf",
    head=HOST,
    clients=(HOST,),
    osds=(_osd(0, db_device="/dev/disk/by-partlabel/osd-device-2-data"), _osd(1)),
)


@pytest.fixture(scope="module")
def sh(two: Lab) -> Shell:
    """Runs shell text on the machine as an engine does; what it printed."""
    return lambda text: access.run(two, two.head, f"set -eu\nSUDO=\n(\n{text}\n)")


class Machine:
    """The machine, with OSDs or without."""

    def __init__(self, sh: Shell) -> None:
        self.sh = sh
        self.paths = [device for osd in SITE.osds for device in osd.devices]
        for path in self.paths:
            self.blank(path)
        looked = json.loads(self.sh(destroy.identify(DIR, self.paths)))
        notes = {
            path: {"identity": identity, "uuid": str(uuid.uuid4()), "wipe": False}
            for path, identity in looked.items()
        }
        self.do(devices.recording(DIR, {HOST: notes}))

    def do(self, scripts: HostScripts) -> str:
        return self.sh(scripts[HOST])

    def prepare(self, overlay: Luks) -> None:
        """What a campaign does before its OSDs. That nothing may be wiped shows that the take-down
        before has left every device empty."""
        self.sh(destroy.claim(DIR, self.paths))
        self.do(overlay.before_osds(SITE))

    def blank(self, device: str) -> None:
        """Nothing is left of what somebody else has done to a device."""
        self.sh(f"dd if=/dev/zero of={device} bs=1M count={DISK_MIB} || :; sync")

    def start_osds(self, overlay: Luks) -> None:
        """Open the devices that the overlay offers, and hold them."""
        for osd in SITE.osds:
            opened = [overlay.osd_device(osd, osd.device)]
            db_device = overlay.osd_db_device(osd, osd.db_device)
            opened += [db_device] if db_device else []
            opens = "; ".join(f"exec {n}<> {path}" for n, path in enumerate(opened, start=5))
            hold = HOLD.format(opens=opens)
            self.sh(f"setsid sh -c '{hold}' & echo $! > {osd.pid_file}; sleep 0.5")

    def end_osds(self) -> None:
        pid_files = " ".join(osd.pid_file for osd in SITE.osds)
        self.sh(f"for file in {pid_files}; do kill $(cat $file) || :; rm -f $file; done")

    def looks(self) -> list[HostOutputs]:
        """What proofs see now, of a cell's beginning and of its end."""
        return [{HOST: self.do(ABSENT.probe(SITE))} for _ in range(2)]

    def verdict(self, overlay: Luks, looks: Optional[list[HostOutputs]] = None) -> Verdict:
        """By what is seen now, or by looks of before: an emulated machine takes seconds for one."""
        assert overlay.probe(SITE) == ABSENT.probe(SITE)
        return overlay.judge(SITE, *(looks or self.looks()))

    def tables(self) -> list[set[str]]:
        """The options of each mapping, as device-mapper prints them."""
        lines = self.sh("dmsetup table --target crypt").splitlines()
        return [set(line.split()[10:]) for line in lines if " crypt " in line]

    def left(self) -> str:
        """Whatever there is of mappings, keys and headers."""
        looked_at = " ".join(own.device for own in mappings_of(SITE)[HOST])
        return self.sh(
            "dmsetup table --target crypt | grep crypt || :\n"
            "ls /run/cbt-crypto /dev/shm/cbt-crypto 2> /dev/null || :\n"
            f"for device in {looked_at}; do blkid -p $device | grep LUKS || :; done"
        )


@pytest.fixture(scope="module")
def machine(sh: Shell) -> Machine:
    return Machine(sh)


@pytest.fixture
def encrypted(machine: Machine) -> Iterator[Machine]:
    """OSDs on mappings without any flag, with 4 KiB sectors."""
    overlay = Luks(sector_size=4096)
    machine.prepare(overlay)
    machine.start_osds(overlay)
    yield machine
    machine.end_osds()
    machine.do(overlay.take_down(SITE))
    assert machine.left() == ""


def test_the_machine_offers_all_that_is_needed(machine: Machine) -> None:
    overlay = Luks.model_validate({**dict.fromkeys(FLAGS, True), "sector_size": 4096})
    (need,) = overlay.requirements(SITE)
    assert need.judge(machine.sh(need.script)) is None


def test_osds_on_plain_disks(machine: Machine) -> None:
    machine.start_osds(ABSENT)
    looks = machine.looks()
    machine.end_osds()
    verdict, encrypted = machine.verdict(ABSENT, looks), machine.verdict(Luks(), looks)
    assert verdict.proved, verdict.reason
    assert not encrypted.proved


def test_every_flag_alone_and_together_on_open_mappings(encrypted: Machine) -> None:
    bare = Luks(sector_size=4096)
    looks = encrypted.looks()
    assert encrypted.verdict(bare, looks).proved
    for flags in (*((flag,) for flag in FLAGS), FLAGS):
        overlay = bare.model_copy(update=dict.fromkeys(flags, True))
        without = encrypted.verdict(overlay, looks)
        assert not without.proved
        assert "has flags " in without.reason
        encrypted.do(overlay.after_osds(SITE))
        assert encrypted.tables() == [{*flags, "sector_size:4096"}] * 3
        looks = encrypted.looks()
        verdict = encrypted.verdict(overlay, looks)
        assert verdict.proved, verdict.reason
    assert not encrypted.verdict(bare, looks).proved
    assert not encrypted.verdict(ABSENT, looks).proved


def _watched(machine: Machine, overlay: Luks, meanwhile: str) -> tuple[Optional[str], WatchRecord]:
    """What a watch over these commands says, as that of a cell does, and what it wrote."""
    watches = {overlay.name: overlay.watch(SITE)}
    machine.sh(f"{watch.start(watches, DIR)[HOST]}\n{watch.ready(DIR)}")
    machine.sh(meanwhile)
    records = {HOST: watch.parse(machine.sh(watch.stop(DIR)))}
    gap = watch.fault(overlay.name, [HOST], records)
    seen = watch.seen_of(overlay.name, records)
    return gap or overlay.judge_seen(SITE, seen), records[HOST]


def test_a_flag_that_comes_and_goes_between_two_looks_is_seen(encrypted: Machine) -> None:
    """cryptsetup refreshes a mapping twice, there and back; both probes find it as it should be."""
    overlay = Luks(sector_size=4096)
    (name, *_) = [own.name for own in mappings_of(SITE)[HOST] if "osd.1" in own.name]
    refresh = f"cryptsetup refresh --key-file /run/cbt-crypto/{name}"
    before = {HOST: encrypted.do(overlay.probe(SITE))}
    toggled = f"{refresh} --perf-no_read_workqueue {name}; {refresh} {name}"
    fault, record = _watched(encrypted, overlay, toggled)
    after = {HOST: encrypted.do(overlay.probe(SITE))}
    assert overlay.judge(SITE, before, after).proved
    assert fault is not None
    assert fault.startswith(f"osd.1 on {HOST}: {name} was changed, or suspended, during the cell")
    assert record.looks >= 2


def test_what_nobody_changes_and_what_udev_repeats_is_no_change(encrypted: Machine) -> None:
    overlay = Luks(sector_size=4096)
    fault, record = _watched(encrypted, overlay, "udevadm trigger --subsystem-match=block; sleep 6")
    assert fault is None
    assert record.looks >= 3
    assert len(record.seen["luks"]) == 1
    assert sorted(record.seen["luks"][0].value) == ["osd.0", "osd.1"]


def test_bytes_that_pass_a_mapping_count_on_it_and_on_the_disk_below(encrypted: Machine) -> None:
    """dd says how many it moved past every cache; the disk has them, though not as written."""
    osd = SITE.osds[1]
    mapping = Luks(sector_size=4096).osd_device(osd, osd.device)
    ask = shell.python(shell.program(traffic_on_host), {"osd.1": osd.pid_file})
    readings = [json.loads(encrypted.sh(ask))["osd.1"]]
    encrypted.sh(
        f"yes known-pattern | dd of={mapping} bs=1M count=4 iflag=fullblock oflag=direct\n"
        f"dd if={mapping} of=/dev/null bs=1M count=2 iflag=direct"
    )
    readings.append(json.loads(encrypted.sh(ask))["osd.1"])
    (first,), (last,) = (reading["devices"] for reading in readings)
    assert [("mapping" in layer) for layer in last] == [True, False]
    for before, after in zip(first, last):
        assert before["device"] == after["device"]
        # udev may read a little besides; nobody else writes.
        assert after["written_bytes"] - before["written_bytes"] == 4 * MIB
        assert 2 * MIB <= after["read_bytes"] - before["read_bytes"] < 3 * MIB
    assert "known-pattern" in encrypted.sh(f"dd if={mapping} bs=1M count=1 | head -c 100")
    assert encrypted.sh(f"grep -ac known-pattern {osd.device} || :").strip() == "0"


def test_flags_from_the_start(machine: Machine) -> None:
    overlay = Luks(submit_from_crypt_cpus=True, no_read_workqueue=True)
    machine.prepare(overlay)
    machine.start_osds(overlay)
    options, verdict = machine.tables(), machine.verdict(overlay)
    machine.end_osds()
    machine.do(overlay.take_down(SITE))
    assert options == [{"submit_from_crypt_cpus", "no_read_workqueue"}] * 3
    assert verdict.proved, verdict.reason


@pytest.mark.parametrize(
    "accident",
    [
        "rm -r /run/cbt-crypto",
        "cryptsetup close $(dmsetup ls --target crypt | cut -f 1 | head -n 1)",
        "dmsetup ls --target crypt | cut -f 1 | xargs -n 1 cryptsetup close; rm -r /run/cbt-crypto",
        "wipefs -q -a /dev/disk/by-partlabel/osd-device-1-data -f",
    ],
)
def test_what_a_killed_run_left_is_cleared(machine: Machine, accident: str) -> None:
    machine.prepare(Luks())
    assert machine.left().count("crypto_LUKS") == 3
    machine.sh(accident)
    for _ in range(2):
        machine.do(ABSENT.take_down(SITE))
    left = machine.left()
    if "wipefs" in accident:
        # Without its header nothing says that the device is ours, so it stays as it is.
        machine.blank(SITE.osds[1].device)
    assert left == ""


def test_another_s_header_is_left_alone(machine: Machine) -> None:
    device = SITE.osds[1].device
    machine.sh(
        f"echo secret | cryptsetup luksFormat --batch-mode --label theirs --pbkdf pbkdf2 {device} -"
    )
    machine.do(ABSENT.take_down(SITE))
    left = machine.left()
    machine.blank(device)
    assert 'LABEL="theirs"' in left


def test_a_disk_that_does_not_encrypt_by_itself_is_refused(sh: Shell) -> None:
    said = [need.judge(sh(need.script)) for need in Luks(hw_opal="only").requirements(SITE)]
    refused = [sentence for sentence in said if sentence and "OPAL" in sentence]
    assert len(refused) == 3, said
    for sentence in refused:
        assert "is not a self-encrypting drive (OPAL); not on this machine" in sentence
