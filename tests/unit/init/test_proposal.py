"""What is proposed for the hosts that people have, and that the file of it is one."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, Optional

import pytest
import yaml
from rich.console import Console

from cbt_crypto.errors import UsageError
from cbt_crypto.plan.file import read_campaign, validate_campaign
from cbt_crypto.plan.order import cells_of
from cbt_crypto.plan.show import show_plan
from cbt_crypto.plan.steps import Plan, plan
from cbt_crypto.run.init import command, hardware_on_host, proposed
from cbt_crypto.run.init.command import expand, hours_of, of_inventory, within
from cbt_crypto.run.init.hardware import HostDrive, HostHardware, HostNetwork, stable_name, why_not
from cbt_crypto.run.init.proposed import (
    ARTICLES,
    SIZES,
    Proposal,
    Size,
    Start,
    cut_from,
    propose,
    start_from,
    without_rows_that_fail,
)

pytestmark = pytest.mark.unit

DATA = Path(__file__).parents[1] / "data"

GIB = 1 << 30


TOLD: dict[str, Any] = {
    "path": "/dev/sda", "size": 10**12, "mounts": [], "content": [], "volumes": [],
    "partitions": 0, "osd": None, "read_only": False, "removable": False,
}  # fmt: skip


def drive(host: str, number: int, size: float = 1.92e12, model: str = "MZQL2", **more: Any) -> Any:
    name = f"nvme{number}n1"
    stable = f"/dev/disk/by-id/nvme-eui.{host}{number:04}"
    about = {"name": name, "path": f"/dev/{name}", "size": int(size), "model": model}
    unsaid: dict[str, Any] = {"serial": "", "rotational": False, "numa": None, "links": []}
    return HostDrive(**{**TOLD, **unsaid, **about, "host": host, "stable": stable, **more})


def host(name: str, drives: tuple[HostDrive, ...] = (), memory: int = 256 * GIB) -> HostHardware:
    number = sum(map(ord, name)) % 200 + 2
    networks = (
        HostNetwork("eth0", f"10.0.0.{number}/24", 1500, 1000, True),
        HostNetwork("eth1", f"192.168.1.{number}/24", 9000, 25000, True),
    )
    return HostHardware(
        "Debian", "6.1", "EPYC", 64, 2, memory, 100 * GIB, {}, networks, drives, name
    )


def nodes(prefix: str, count: int, drives: int) -> list[HostHardware]:
    names = [f"{prefix}{n}" for n in range(count)]
    return [host(name, tuple(drive(name, n) for n in range(drives))) for name in names]


TEN = [*nodes("osd", 5, 6), *nodes("client", 5, 1)]


def written(proposal: Proposal, article: Optional[str] = None) -> str:
    start = start_from(article, proposal, None)
    return proposed.text(proposal, start, "my.yaml", "root", "an article")


def test_the_article_of_ten_nodes() -> None:
    found = propose(TEN)
    assert [one.name for one in found.osds] == [f"osd{n}" for n in range(5)]
    assert [one.name for one in found.clients] == [f"client{n}" for n in range(5)]
    assert (found.osds_per_node, found.replication) == (6, 3)
    assert found.memory_target == 16 * GIB
    assert found.pg_num == 1024, "30 OSDs x 100 PGs / 3 replicas"
    assert found.network.address.startswith("192.168.1.")


def test_names_that_say_nothing_leave_it_to_the_drives() -> None:
    found = propose([*nodes("a", 2, 0), *nodes("b", 3, 2)])
    assert [one.name for one in found.osds] == ["b0", "b1", "b2"]
    assert [one.name for one in found.clients] == ["a0", "a1"]


@pytest.mark.parametrize(("count", "clients"), [(1, 1), (2, 1), (4, 1), (8, 2)])
def test_hosts_that_are_alike_are_divided(count: int, clients: int) -> None:
    found = propose(nodes("hv", count, 2))
    assert len(found.clients) == clients
    assert found.replication == min(3, len(found.osds))


def test_a_host_for_both_keeps_memory_for_the_client() -> None:
    alone = propose([host("hv", (drive("hv", 0), drive("hv", 1)), memory=16 * GIB)])
    assert alone.memory_target == 4 * GIB
    with_client = propose([host("osd0", (drive("osd0", 0),), memory=16 * GIB), host("client0")])
    assert with_client.memory_target == 11 * GIB
    poor = propose([host("hv", tuple(drive("hv", n) for n in range(9)), memory=8 * GIB)])
    assert poor.memory_target == 896 << 20, "without one each OSD would take 4 GiB"
    assert "of 8 GiB; the least that Ceph takes, and too much." in written(poor)


def test_a_network_in_which_hosts_have_the_same_address_is_none() -> None:
    nat = HostNetwork("eth2", "10.0.2.15/24", 9000, 100000, True)
    hosts = [replace(one, networks=(nat, *one.networks)) for one in TEN]
    assert propose(hosts).network.name == "eth1"
    text = written(propose([replace(one, networks=(nat,)) for one in TEN]))
    assert (
        "# eth2, 100 Gbit/s, MTU 9000: the fastest of osd0; the hosts have none in common" in text
    )


def test_hosts_without_collectl_are_watched_by_the_sampler(tmp_path: Path) -> None:
    having = [replace(one, versions={"collectl": "4.3.1"}) for one in TEN]
    assert "monitoring_profiles" not in written(propose(having))
    text = written(propose([*having[1:], TEN[0]]))
    assert "collectl is missing on osd0." in text
    path = tmp_path / "my.yaml"
    path.write_text(text)
    monitoring = read_campaign(path).monitoring
    assert monitoring.sampler is not None
    assert monitoring.collectl is None


def test_drives_of_one_kind_and_as_many_on_every_host() -> None:
    def disk(name: str, number: int) -> Any:
        return drive(name, number, 8e12, "HUH", rotational=True)

    mixed = [
        host("osd0", (drive("osd0", 0), drive("osd0", 1), disk("osd0", 2))),
        host("osd1", (disk("osd1", 3), drive("osd1", 0))),
        host("client0"),
    ]
    found = propose(mixed)
    assert {name: [d.model for d in own] for name, own in found.drives.items()} == {
        "osd0": ["MZQL2"], "osd1": ["MZQL2"],
    }, "fast ones before spinning ones"  # fmt: skip
    assert len(found.spare) == 3
    assert "left out as every host" in written(found)


def test_what_is_in_use_is_in_no_file() -> None:
    used = replace(drive("osd0", 0), why_not="mounted on /")
    found = propose([host("osd0", (used, drive("osd0", 1))), host("client0")])
    assert "osd00000" not in written(found)
    assert [one.name for one in found.drives["osd0"]] == ["nvme1n1"]


def test_no_free_drive_means_files(tmp_path: Path) -> None:
    found = propose(nodes("node", 3, 0))
    assert found.file_bytes == 10 * GIB
    path = tmp_path / "my.yaml"
    path.write_text(written(found))
    assert read_campaign(path).cluster.osd_file_size == "10G"


@pytest.mark.parametrize("article", [None, *ARTICLES])
@pytest.mark.parametrize("hosts", [TEN, nodes("hv", 3, 2), nodes("one", 1, 0)])
def test_the_file_is_a_campaign(
    tmp_path: Path, hosts: list[HostHardware], article: Optional[str]
) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(written(propose(hosts), article))
    campaign = read_campaign(path)
    assert cells_of(campaign)
    assert "&" not in path.read_text(), "no aliases"
    data = yaml.safe_load(path.read_text())
    volumes = {
        part["vol_size"]
        for section in data["benchmarks"].values()
        for part in (section if isinstance(section, list) else [section])
    }
    assert len(volumes) == 1, "volumes of one size are shared and filled once"


def test_hostile_words_of_a_host_stay_in_their_comment(tmp_path: Path) -> None:
    evil = drive("osd0", 0, model="X\ncluster: {}\r\x85\u2028benchmarks: {}")
    text = written(propose([host("osd0", (evil,)), host("client0")]))
    assert validate_campaign(tmp_path / "x", yaml.safe_load(text)).cluster.osds == ["osd0"]
    assert sum(line.startswith("cluster:") for line in text.splitlines()) == 1


@pytest.mark.parametrize(("seconds", "time", "ramp"), [(None, 60, 10), (30, 30, 10), (3, 3, 3)])
def test_a_first_try_may_be_short_and_has_rounds_that_give_verdicts(
    seconds: Optional[int], time: int, ramp: int
) -> None:
    start = start_from(None, propose(TEN), seconds)
    assert {(load["time"], load["ramp"]) for load in start.benchmarks.values()} == {(time, ramp)}
    assert start.cluster["iterations"] == 6
    assert "  iterations: 6\n" in proposed.text(propose(TEN), start, "my.yaml", None, "x")


def test_a_configuration_without_its_means_is_left_out_and_says_why() -> None:
    start = start_from("reef_encryption", propose(TEN), 10)
    wanting = {("LUKS", "luks"): "osd0: no", ("Unencrypted", "tuned"): "osd0: TuneD is missing"}
    start = without_rows_that_fail(start, wanting)
    assert "LUKS" not in start.usable
    assert all("tuned" not in overlays for overlays in start.usable.values())
    text = proposed.text(propose(TEN), start, "my.yaml", None, "x")
    assert "# osd0: no\n    # LUKS: " in text
    assert "time: 10" in text


@pytest.mark.parametrize(
    ("links", "name"),
    [
        (["by-id/ata-X_1", "by-id/wwn-0x5"], "by-id/wwn-0x5"),
        (["by-id/lvm-pv-uuid-1"], None),
        (["by-id/ata-X", "by-partlabel/osd-device-3-data"], "by-partlabel/osd-device-3-data"),
        (["by-partlabel/EFI"], None),
        ([], None),
    ],
)
def test_the_stable_name(links: list[str], name: Optional[str]) -> None:
    found = stable_name([f"/dev/disk/{link}" for link in links])
    assert found == (name and f"/dev/disk/{name}")


@pytest.mark.parametrize(
    ("told", "refused", "why"),
    [
        ({}, None, None),
        ({"mounts": ["/"], "content": ["ext4"]}, "/dev/sda is mounted; x", "mounted on /"),
        ({"osd": "1-2"}, "/dev/sda carries data (bluestore); x", "a Ceph OSD 1-2"),
        ({"content": ["LVM2_member"], "volumes": ["vg-a"]}, "x", "an LVM physical volume (vg-a)"),
        ({"volumes": ["ceph--1-osd"], "content": ["LVM2_member"]}, "x",
         "a Ceph OSD, an LVM physical volume (ceph--1-osd)"),
        ({}, "/dev/sda is in use; name another", "is in use"),
        ({"removable": True}, None, "removable"),
        ({"size": 10**6}, None, "smaller than 1 GiB"),
        ({"partitions": 1}, None, "1 partition"),
        ({"partitions": 2}, None, "2 partitions"),
    ],
)  # fmt: skip
def test_why_a_drive_is_not_free(
    told: dict[str, Any], refused: Optional[str], why: Optional[str]
) -> None:
    assert why_not({**TOLD, **told}, "/dev/disk/by-id/wwn-1", refused) == why


def test_a_partition_is_none_of_its_own_partitions() -> None:
    """As lsblk shows a drive that is divided as CBT's documentation has it."""
    empty = {"model": None, "serial": None, "rota": False, "tran": None, "rm": False, "ro": False}
    unused = {**empty, "size": 1 << 32, "fstype": None, "mountpoint": None}
    part = {**unused, "name": "vda1", "type": "part"}
    disk = {**unused, "name": "vda", "type": "disk", "children": [part]}
    label = "/dev/disk/by-partlabel/osd-device-0-data"
    assert why_not(hardware_on_host.drive(part, {}), label, None) is None
    assert why_not(hardware_on_host.drive(disk, {}), label, None) == "1 partition"


def test_a_program_that_is_slow_to_say_its_version_is_there(
    programs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs("collectl", "sleep 30")
    programs("fio", "echo fio-3.39")
    monkeypatch.setattr(hardware_on_host, "SLOWEST_S", 0.2)
    monkeypatch.setattr(hardware_on_host, "PROGRAMS", {"collectl": "", "fio": "", "no-such": ""})
    assert hardware_on_host.versions() == {"collectl": "?", "fio": "3.39"}


def test_host_lists_without_pdsh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert expand("osd0,osd1,osd0") == ("osd0", "osd1")
    for text in ("osd[0-1]", "osd0,^file", "osd0,/^osd/"):
        with pytest.raises(UsageError, match="install pdsh, or write every name, with commas"):
            expand(text)
    with pytest.raises(UsageError, match="is no host name"):
        expand("osd0,-o")
    with pytest.raises(UsageError, match="names no host; write names with commas"):
        expand(",")


def test_host_lists_are_pdshs_own(programs: Any) -> None:
    programs("pdsh", 'echo "-- Target nodes --"; echo osd0,osd1,osd0')
    assert expand("osd[0-1],osd0") == ("osd0", "osd1")
    programs("pdsh", 'echo "-- Target nodes --"; echo "node[0-3"')
    with pytest.raises(UsageError, match="is no host name"):
        expand("node[0-3")
    programs("pdsh", 'echo "pdsh@x: bad" >&2; exit 1')
    with pytest.raises(UsageError, match="is no list of hosts"):
        expand("")


def test_the_hosts_of_an_ansible_inventory(programs: Any, tmp_path: Path) -> None:
    """What ansible-inventory 2.19.14 printed of an INI file with osd[0:2], aliases and groups."""
    printed = DATA / "init" / "ansible-inventory-2.19.14.json"
    programs("ansible-inventory", f'echo "$*" > {tmp_path}/asked; cat {printed}')
    inventory = tmp_path / "hosts.ini"
    inventory.touch()
    assert of_inventory(inventory, "osds:clients") == (
        "client0", "mon0", "osd0", "osd1", "osd2", "10.0.0.9",
    )  # fmt: skip
    asked = (tmp_path / "asked").read_text()
    assert asked == f"-i {inventory} --list --limit osds:clients\n"


def test_an_inventory_with_ports(programs: Any, tmp_path: Path) -> None:
    """Machines behind one address became one host: the one that forwards the ports."""
    hosts = {f"osd{n}": {"ansible_host": "10.0.0.9", "ansible_port": 2200 + n} for n in (0, 1)}
    document = {"_meta": {"hostvars": hosts}, "osds": {"hosts": ["osd0", "osd1"]}}
    programs("ansible-inventory", f"echo '{json.dumps(document)}'")
    with pytest.raises(UsageError, match=r"osd0 has ssh at port 2200; .* ~/.ssh/config"):
        of_inventory(tmp_path, None)


def test_names_that_ansible_had_earlier_count(programs: Any, tmp_path: Path) -> None:
    """Drives of whatever has the inventory's name in DNS were proposed."""
    hosts: dict[str, Any] = {"osd0": {"ansible_ssh_host": "10.0.0.9"}}
    document = {"_meta": {"hostvars": hosts}, "osds": {"hosts": ["osd0"]}}
    programs("ansible-inventory", f"echo '{json.dumps(document)}'")
    assert of_inventory(tmp_path, None) == ("10.0.0.9",)
    hosts["osd0"]["ansible_ssh_port"] = 2201
    programs("ansible-inventory", f"echo '{json.dumps(document)}'")
    with pytest.raises(UsageError, match="osd0 has ssh at port 2201"):
        of_inventory(tmp_path, None)


def test_an_inventory_that_cannot_be_had_is_a_sentence(
    programs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory = tmp_path / "hosts.ini"
    with pytest.raises(UsageError, match="no such file"):
        of_inventory(inventory, None)
    inventory.touch()
    programs("ansible-inventory", "echo '{}'; echo '[WARNING]: Unable to parse' >&2")
    with pytest.raises(UsageError, match=r"has no such hosts; ansible-inventory says: .*Unable"):
        of_inventory(inventory, None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="install ansible-core, or name the hosts"):
        of_inventory(inventory, None)


def test_volumes_that_fit_into_the_osds_memory_are_said() -> None:
    """30 OSDs of 16 GiB; what a client reads of 8 GiB never leaves their memory."""
    text = written(propose(TEN))
    assert text.count("# Its volumes fit into the OSDs' memory, so reads measure memory") == 3
    small = [replace(each, memory=8 * GIB) for each in nodes("osd", 1, 2)]
    assert "so reads measure memory" not in written(propose([*small, host("client0")]))


HOSTS = {
    "ten": TEN,
    "one without drives": [host("node0")],
    "one with a drive": [host("node0", (drive("node0", 0),))],
    "three and a client": [*nodes("osd", 3, 2), *nodes("client", 1, 0)],
}


@pytest.mark.parametrize("hosts", HOSTS.values(), ids=HOSTS)
def test_a_file_ends_in_verdicts_within_two_hours(hosts: list[HostHardware]) -> None:
    """Those of ten hosts took 16 h."""
    proposal = propose(hosts)

    def planned(start: Start) -> Plan:
        text = proposed.text(proposal, start, "my.yaml", "root", "an article")
        return plan(validate_campaign(Path("my.yaml"), yaml.safe_load(text)))

    sizes = (start_from(None, proposal, None, size) for size in SIZES)
    start, takes = within(2.0, sizes, lambda one: hours_of(planned(one).campaign))
    assert 1.0 < takes <= 2.0
    said = StringIO()
    show_plan(planned(start), Console(file=said, width=10_000))
    assert "The campaign ends in verdicts on" in said.getvalue()


def test_what_was_cut_is_said() -> None:
    """Of ten hosts with real drives, a workload and 7/8 of each volume went without a word."""
    proposal = propose(TEN)
    whole = start_from(None, proposal, None)
    assert cut_from(whole, whole) == ""
    start = start_from(None, proposal, None, Size(10, 4, 1024, 2))
    cut = (
        "4 rounds instead of 6, cells of 10 s instead of 60, volumes of 1024 MiB instead of 8192, "
        "without rbd_single_client_sync"
    )
    assert cut_from(whole, start) == cut
    text = proposed.text(proposal, replace(start, cut=cut), "my.yaml", None, "x")
    assert f"\n# To fit --hours: {cut}.\nbenchmarks:\n" in text
    assert "# To fit" not in proposed.text(proposal, whole, "my.yaml", None, "x")


def test_an_article_is_cut_as_far_as_it_ends_in_verdicts() -> None:
    least = start_from("reef_encryption", propose(TEN), None, SIZES[-1])
    assert least.cluster["iterations"] == 4
    ((name, section),) = least.benchmarks.items()
    assert name == "rbd_multi_client" and (section["time"], section["vol_size"]) == (10, 1024)
    fixed = start_from("reef_encryption", propose(TEN), 45, SIZES[-1])
    assert fixed.benchmarks[name]["time"] == 45


def test_a_list_of_hosts_without_an_end(programs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of ^/dev/zero."""
    programs("pdsh", "exec sleep 30")
    monkeypatch.setattr(command, "ANSWER_S", 0.2)
    with pytest.raises(UsageError, match="pdsh names no hosts within"):
        expand("^/dev/zero")
