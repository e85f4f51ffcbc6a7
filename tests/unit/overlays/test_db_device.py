"""The second device: volumes, files, guards, and what proves them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest
from pydantic import ValidationError

from cbt_crypto.cluster_overlays.db_device import DbDevice
from cbt_crypto.cluster_overlays.luks.overlay import Luks
from cbt_crypto.cluster_overlays.stack import Stack, leftovers
from cbt_crypto.hosts.devices.destroy import DeviceGuard
from cbt_crypto.hosts.site import Osd, Site

pytestmark = pytest.mark.unit
DB = DbDevice(devices="/dev/nvme0n1", size="2G")


def _volume(overlay: DbDevice, osd: Osd) -> str:
    return overlay.osd_db_device(osd, None) or ""


def test_osds_of_a_host_share_one_group_of_volumes(site: Site) -> None:
    script = DB.before_osds(site)["node2"]
    assert script.count("\ngroup cbt-crypto-") == 1
    assert script.count("by_size cbt-crypto-") == 2
    assert "osd.0-db 2G" in script and "osd.1-db 2G" in script
    assert script.index("\nclaim /dev/nvme0n1") < script.index("\ngroup cbt-crypto-")
    paths = {_volume(DB, osd) for osd in site.osds}
    assert len(paths) == 4 and all(path.startswith("/dev/cbt-crypto-") for path in paths)


def test_devices_are_taken_in_turn_and_by_host(osd: Callable[..., Osd]) -> None:
    two = [replace(osd(n, "node2"), number=n) for n in range(3)]
    groups = [_volume(DbDevice(devices=["/dev/a", "/dev/b"], size="1G"), one) for one in two]
    assert groups[0].split("/")[2] == groups[2].split("/")[2] != groups[1].split("/")[2]
    by_host = DbDevice(devices={"node2": ["/dev/a"]}, size="1G")
    assert _volume(by_host, two[0]).split("/")[2] == groups[0].split("/")[2]


def test_a_host_without_a_device_is_one_sentence(site: Site) -> None:
    needs = DbDevice(devices={"node2": ["/dev/a"]}, size="1G").requirements(site)
    assert any("names no device of node3" in need.script for need in needs)


def test_the_device_is_guarded_like_the_data_devices(site: Site) -> None:
    guards = [need for need in DB.requirements(site) if isinstance(need, DeviceGuard)]
    assert [(guard.hosts, guard.device) for guard in guards] == [
        (("node2",), "/dev/nvme0n1"),
        (("node3",), "/dev/nvme0n1"),
    ]
    assert guards[0].judge("signature ext4") is not None


@pytest.mark.parametrize("mode", [0o755, 0o1777, 0o777])
def test_a_directory_where_others_may_put_something_in_a_file_s_place(
    one_host: Site, mode: int, tmp_path: Path
) -> None:
    """A link there led mkfs, as root, to whatever it names."""
    folder = Path("/var/tmp", f"cbt-crypto-{os.getpid()}-db")
    folder.mkdir()
    folder.chmod(mode)
    osds = tuple(replace(osd, is_file=True) for osd in one_host.osds)
    site = replace(one_host, osds=osds, tmp_dir=str(tmp_path))
    overlay = DbDevice(directory=str(folder), size="1M")
    try:
        (need,) = overlay.requirements(site)
        said = _run(need.script).stdout.strip()
        made = _run(overlay.before_osds(site)[site.head])
        files = [path.name for path in folder.iterdir()]
    finally:
        shutil.rmtree(folder)
    if mode == 0o777:
        wrong = f"leads through {folder}, where others may write; name it another way"
        assert said == f"db_device.directory {folder} {wrong}"
        assert made.returncode != 0 and wrong in made.stderr and files == []
    else:
        assert (said, made.returncode, len(files)) == ("ok", 0, len(osds)), made.stderr


def test_files_on_a_file_system_that_is_not_mounted_now(one_host: Site, tmp_path: Path) -> None:
    """After a restart of the machine, clean-up left them in silence, and said that all is down."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    folder, link = tmp_path / "second", tmp_path / "link"
    folder.mkdir(mode=0o755)
    link.symlink_to(folder)
    osds = tuple(replace(osd, is_file=True) for osd in one_host.osds)
    site = replace(one_host, osds=osds, tmp_dir=str(tmp_path))
    overlay = DbDevice(directory=str(link), size="1M")
    other = DbDevice(directory=str(tmp_path / "first"), size="1M")
    (tmp_path / "first").mkdir(mode=0o755)
    made, down = overlay.before_osds(site)[site.head], overlay.take_down(site)[site.head]
    script = f"""
    SUDO=
    ({other.before_osds(site)[site.head]})
    mount -t tmpfs -o mode=755 second {folder}
    ({made}); ls {folder} | wc -l
    mount --make-private {folder}; mkdir {tmp_path}/kept; mount --move {folder} {tmp_path}/kept
    ({down}) || echo refused
    mount --move {tmp_path}/kept {folder}
    ({down}); ls {folder} | wc -l
    ({other.take_down(site)[site.head]}); ls {tmp_path}/first | wc -l
    """
    command = ["unshare", "--mount", "sh", "-euc", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(len(osds)), "refused", "0", "0"], done.stderr
    assert f"in {link}, and {folder} is not mounted; mount it, or, if" in done.stderr


def test_a_note_of_a_mount_that_a_power_cut_emptied(one_host: Site, tmp_path: Path) -> None:
    """It was none: the databases stayed, and everything was said to be down."""
    (tmp_path / "second").mkdir()
    site = replace(one_host, tmp_dir=str(tmp_path))
    overlay = DbDevice(directory=str(tmp_path / "second"), size="1M")
    check = overlay._of_mount("is_mounted", site)
    assert _run(check).returncode == 0, "nothing was made"
    assert _run(overlay._of_mount("note_mount", site)).returncode == 0
    assert _run(check).returncode == 0
    (note,) = tmp_path.glob("db_device.*.mount")
    note.write_text("")
    done = _run(check)
    assert done.returncode == 1
    assert f"emptied the note of where that was mounted; see that it is, and remove {note}" in (
        done.stderr
    )


def _run(script: str) -> subprocess.CompletedProcess[str]:
    text = f"set -eu\nSUDO=\n{script}"
    return subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", [{}, {"devices": "/dev/a", "directory": "/fast"}])
def test_one_place_has_to_be_named(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="name either devices or directory"):
        DbDevice(size="1G", **options)


def test_luks_lies_on_the_volume_wherever_the_file_names_it(site: Site) -> None:
    for named in ([DB, Luks()], [Luks(), DB]):
        stack = Stack(named)
        osd = site.osds[0]
        assert stack.osd_db_device(osd, osd.db_device) == Luks().osd_db_device(osd, "x")
        text = stack.before_osds(site)["node2"]
        assert text.index("vgcreate") < text.index("luksFormat")
        assert _volume(DB, osd) in text.partition("luksFormat")[2]
        down = leftovers([stack], site)["node2"]
        assert down.index("cryptsetup close") < down.index("vgremove")


def test_luks_can_leave_the_volume_or_the_data_plain(site: Site) -> None:
    osd = site.osds[0]
    data = Stack([DB, Luks(devices=("data",))])
    assert data.osd_db_device(osd, osd.db_device) == _volume(DB, osd)
    assert data.osd_device(osd, osd.device).startswith("/dev/mapper/")
    assert "osd.0-db " not in data.before_osds(site)["node2"].partition("luksFormat")[2]
    db = Stack([DB, Luks(devices=("db",))])
    assert db.osd_device(osd, osd.device) == osd.device
    assert (db.osd_db_device(osd, osd.db_device) or "").startswith("/dev/mapper/")


def test_mappings_of_every_configuration_go_before_any_volume(site: Site) -> None:
    text = leftovers([Stack([DB]), Stack([DB, Luks()])], site)["node2"]
    assert text.rindex("\nclose_luks cbt-crypto-") < text.index('remove_group "$group"')


def _outputs(site: Site, overlay: DbDevice, **changes: Any) -> dict[str, str]:
    metadata = [
        {"id": osd.id, "bluefs_dedicated_db": "1", "bluefs_db_size": str(2 << 30), **changes}
        for osd in site.osds
    ]
    outputs = {}
    for host in site.osd_hosts:
        links = "".join(
            f"osd.{o.id} block.db {_volume(overlay, o)}\nosd.{o.id} block.wal \n"
            for o in site.osds_of(host)
        )
        storage = {
            f"osd.{o.id}": {
                "running": True,
                "named": {"db": f"254:{o.id}"},
                "opened": {f"254:{o.id}": [{"device": f"254:{o.id}", "name": "dm"}]},
            }
            for o in site.osds_of(host)
        }
        outputs[host] = f"@links\n{links}@storage\n{json.dumps(storage)}"
    outputs["node0"] = f"@metadata\n{json.dumps(metadata)}"
    return outputs


def test_proved_by_metadata_and_by_what_is_open(site: Site) -> None:
    outputs = _outputs(site, DB)
    verdict = DB.judge(site, outputs, outputs)
    assert verdict.proved, verdict.reason
    assert "4 of 4 OSDs have their database on a second device" in verdict.reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bluefs_dedicated_db": "0"}, "no database device of its own"),
        ({"bluefs_db_size": "5"}, "has 5 bytes and not 2147483648"),
    ],
)
def test_not_proved_by_other_metadata(site: Site, changes: dict[str, str], reason: str) -> None:
    outputs = _outputs(site, DB, **changes)
    verdict = DB.judge(site, outputs, outputs)
    assert not verdict.proved and reason in verdict.reason


def test_not_proved_when_something_else_is_open(site: Site) -> None:
    outputs = _outputs(site, DB)
    outputs["node2"] = outputs["node2"].replace('"opened": {"254:0": [{"device": "254:0"',
                                                '"opened": {"8:0": [{"device": "8:0"')  # fmt: skip
    verdict = DB.judge(site, outputs, outputs)
    assert not verdict.proved and "has nothing open on /dev/cbt-crypto-" in verdict.reason


def test_silence_proves_nothing(site: Site) -> None:
    assert not DB.judge(site, {}, {}).proved
    assert not DbDevice.absent().judge(site, {}, {}).proved


def test_absence_is_proved_by_the_directories(site: Site) -> None:
    absent = DbDevice.absent()
    outputs = {
        host: "@links\n" + "".join(f"osd.{o.id} block.db \nosd.{o.id} block.wal \n" for o in own)
        for host in site.osd_hosts
        for own in [site.osds_of(host)]
    }
    assert absent.judge(site, outputs, outputs).proved
    outputs["node3"] = outputs["node3"].replace("osd.2 block.db ", "osd.2 block.db /dev/x")
    verdict = absent.judge(site, outputs, outputs)
    assert not verdict.proved and "osd.2 on node3: it has a block.db" in verdict.reason


def test_what_somebody_else_deployed_has_the_devices_that_it_has(
    site: Site, sh: Callable[[str], str], tmp_path: Path
) -> None:
    """A stock OSD with a block.db, whose directory only its own process may see by that name."""
    (tmp_path / "block.db").symlink_to("/dev/ceph-1/osd-db-2")
    pid_file = tmp_path / "osd.0.pid"
    pid_file.write_text(f"{os.getpid()}\n")
    osd = replace(
        site.osds[0], data_dir=str(tmp_path), pid_file=str(pid_file), is_existing=True,
        db_device="/dev/dm-5",
    )  # fmt: skip
    existing = replace(site, osds=(osd,))
    absent = DbDevice.absent()
    outputs = {osd.host: sh(f"SUDO=\n{absent.probe(existing)[osd.host]}")}
    verdict = absent.judge(existing, outputs, outputs)
    assert verdict.proved, verdict
    assert verdict.reason == (
        "1 of 1 OSDs have the devices for their database that they were deployed with"
    )
    links = {"block.db": "/dev/ceph-1/osd-db-2", "block.wal": ""}
    assert verdict.evidence["osd.0"]["links"] == links
    moved = {osd.host: outputs[osd.host].replace("osd-db-2", "osd-db-3")}
    assert not absent.judge(existing, outputs, moved).proved
    pid_file.write_text("4194304\n")
    gone = {osd.host: sh(f"SUDO=\n{absent.probe(existing)[osd.host]}")}
    assert not absent.judge(existing, outputs, gone).proved, "it was not looked at"
