"""Captured in a virtual machine: osd.0 with data and DB device, osd.1 with a data device."""

from __future__ import annotations

import json
import os
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable, Optional

import pytest
from pydantic import ValidationError

from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.luks.mapping import CryptTable, mapping_of
from cbt_crypto.cluster_overlays.luks.overlay import Luks
from cbt_crypto.cluster_overlays.luks.preparation import DmCrypt
from cbt_crypto.hosts.site import Osd, Site

pytestmark = pytest.mark.unit

ABSENT = Luks.absent()
PLAIN = Luks()
TUNED = Luks(submit_from_crypt_cpus=True, sector_size=4096)
FLAGS = {
    "allow_discards": "--allow-discards",
    "same_cpu_crypt": "--perf-same_cpu_crypt",
    "submit_from_crypt_cpus": "--perf-submit_from_crypt_cpus",
    "no_read_workqueue": "--perf-no_read_workqueue",
    "no_write_workqueue": "--perf-no_write_workqueue",
}

Shell = Callable[[str], str]
#: What the proof gives.
UUID = "11111111-2222-4333-8444-555555555555"


def test_it_is_in_the_table() -> None:
    assert OVERLAYS["luks"] is Luks


@pytest.mark.parametrize(
    "options",
    [
        {"type": "luks1"},
        {"cipher": "aes xts"},
        {"cipher": "aes;reboot"},
        {"key_size": 100},
        {"sector_size": 8192},
        {"pbkdf": "none"},
        {"pbkdf_force_iterations": 999},
        {"submit": True},
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Luks.model_validate(options)


@pytest.mark.parametrize(
    ("change", "transition"),
    [
        *(({flag: True}, Transition.LIVE) for flag in FLAGS),
        (dict.fromkeys(FLAGS, True), Transition.LIVE),
        ({"cipher": "aes-cbc-essiv:sha256"}, Transition.REBUILD),
        ({"key_size": 256}, Transition.REBUILD),
        ({"sector_size": 4096}, Transition.REBUILD),
        ({"sector_size": 4096, "no_read_workqueue": True}, Transition.REBUILD),
        ({}, Transition.NONE),
    ],
)
def test_transitions(change: dict[str, Any], transition: Transition) -> None:
    assert PLAIN.transition_to(Luks(**change)) == transition
    assert Luks(**change).transition_to(PLAIN) == transition


def test_to_and_from_unencrypted_is_a_rebuild() -> None:
    assert ABSENT.transition_to(PLAIN) == PLAIN.transition_to(ABSENT) == Transition.REBUILD
    assert ABSENT.transition_to(Luks.absent()) == Transition.NONE


def test_devices_that_the_osds_get(two: Site) -> None:
    first, second = two.osds
    data, db = (mapping_of(first, part, "") for part in ("data", "db"))
    assert data.name.startswith("cbt-crypto-")
    assert PLAIN.osd_device(first, first.device) == f"/dev/mapper/{data.name}"
    assert PLAIN.osd_db_device(first, first.db_device) == f"/dev/mapper/{db.name}"
    assert PLAIN.osd_db_device(second, None) is None
    assert ABSENT.osd_device(first, first.device) == first.device
    assert ABSENT.osd_db_device(first, first.db_device) == first.db_device


def test_names_differ_between_campaigns(osd: Callable[..., Osd]) -> None:
    names = {
        mapping_of(osd(0, "node0", data_dir=f"{tmp_dir}/osd.0"), part, "").name
        for tmp_dir in ("/tmp/a", "/tmp/b")
        for part in ("data", "db")
    }
    assert len(names) == 4
    assert max(map(len, names)) < 48  # bytes that a label of LUKS2 may have


def test_the_absent_overlay_only_clears_up(two: Site) -> None:
    assert ABSENT.before_osds(two) == ABSENT.after_osds(two) == {}
    assert ABSENT.take_down(two) == TUNED.take_down(two)
    assert set(ABSENT.take_down(two)) == {"node0"}


def test_osds_on_files_have_nothing_to_clear_and_cannot_be_encrypted(
    site_of: Callable[..., Site], osd: Callable[..., Osd], sh: Shell
) -> None:
    files = site_of(osd(0, "node2", device="/tmp/cbt/osd.0.block", is_file=True))
    assert ABSENT.take_down(files) == {}
    need = PLAIN.requirements(files)[1]
    assert need.judge(sh(need.script)) == (
        "osd.0 is on a file; luks needs block devices: name osd_devices"
    )


def test_keys_are_root_s_and_in_no_argument(two: Site, tools: Any, sh: Shell) -> None:
    assert sh(tools.script(TUNED.before_osds(two)["node0"])) == ""
    keys = tools.keys()
    assert len(keys) == 3
    assert stat.S_IMODE(keys[0].parent.stat().st_mode) == 0o700
    for key in keys:
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert len(key.read_bytes()) == 64
    assert len({key.read_bytes() for key in keys}) == 3


def test_each_device_is_formatted_and_opened(two: Site, tools: Any, sh: Shell) -> None:
    sh(tools.script(TUNED.before_osds(two)["node0"]))
    for osd, part, device in (
        (two.osds[0], "data", two.osds[0].device),
        (two.osds[0], "db", two.osds[0].db_device),
        (two.osds[1], "data", two.osds[1].device),
    ):
        name = mapping_of(osd, part, "").name
        own = [call for call in tools.calls if call[0] == "cryptsetup" and device in call]
        key = f"{tools.folder}/run/cbt-crypto/{name}"
        assert own == [
            shlex.split(
                "cryptsetup luksFormat --batch-mode --type luks2 --cipher aes-xts-plain64 "
                "--key-size 512 --sector-size 4096 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 "
                f"--uuid {UUID} --label {name} --key-file {key} {device}"
            ),
            shlex.split(
                "cryptsetup open --type luks --perf-submit_from_crypt_cpus "
                f"--key-file {key} {device} {name}"
            ),
        ]


@pytest.mark.parametrize(("flag", "option"), list(FLAGS.items()))
def test_each_flag_opens_and_refreshes(
    two: Site, tools: Any, sh: Shell, flag: str, option: str
) -> None:
    overlay = Luks.model_validate({flag: True})
    sh(tools.script(overlay.before_osds(two)["node0"]))
    tools.make("dmsetup", "echo 0 6258688 crypt aes-xts-plain64 :64:logon:x 0 254:0 32768")
    sh(tools.script(overlay.after_osds(two)["node0"]))
    name = mapping_of(two.osds[1], "data", "").name
    own = [call for call in tools.calls if call[0] == "cryptsetup" and call[-1] == name]
    key = f"{tools.folder}/run/cbt-crypto/{name}"
    assert [call[1] for call in own] == ["open", "refresh"]
    assert own[0][2:5] == ["--type", "luks", option]
    assert own[1] == ["cryptsetup", "refresh", option, "--key-file", key, name]


def test_a_mapping_with_the_right_flags_is_left_alone(two: Site, tools: Any, sh: Shell) -> None:
    table = "0 8 crypt aes-xts-plain64 :64:logon:x 0 254:0 32768 3 allow_discards"
    tools.make("dmsetup", f"echo {table} submit_from_crypt_cpus sector_size:4096")
    same = Luks(submit_from_crypt_cpus=True, allow_discards=True)
    sh(tools.script(same.after_osds(two)["node0"]))
    assert {call[0] for call in tools.calls} == {"stat", "dmsetup"}
    sh(tools.script(PLAIN.after_osds(two)["node0"]))
    assert sum(call[:2] == ["cryptsetup", "refresh"] for call in tools.calls) == 3


def test_argon2_is_told_its_memory(two: Site) -> None:
    overlay = Luks(pbkdf="argon2id", pbkdf_force_iterations=4, pbkdf_memory=1024)
    script = overlay.before_osds(two)["node0"]
    assert "--pbkdf argon2id --pbkdf-force-iterations 4 --pbkdf-memory 1024" in script
    assert "--pbkdf-memory" not in PLAIN.before_osds(two)["node0"]


def test_no_tmpfs_no_key(two: Site, tools: Any, sh: Shell) -> None:
    tools.make("stat", "echo ext2/ext3")
    script = tools.script(PLAIN.before_osds(two)["node0"])
    said = sh(f"({script}) 2>&1 || echo status $?")
    assert "so there is no place for keys; mount one\nstatus 1" in said
    assert tools.keys() == []


def test_one_failing_device_fails_the_host(two: Site, tools: Any, sh: Shell) -> None:
    tools.make("cryptsetup", f"case $* in *{two.osds[1].device}*) exit 1; esac")
    script = tools.script(PLAIN.before_osds(two)["node0"])
    assert sh(f"({script}) || echo status $?") == "status 1\n"
    assert sum(call[:2] == ["cryptsetup", "open"] for call in tools.calls) == 2


def test_taking_down_twice(two: Site, tools: Any, sh: Shell) -> None:
    sh(tools.script(PLAIN.before_osds(two)["node0"]))
    for osd, part in ((two.osds[0], "data"), (two.osds[0], "db"), (two.osds[1], "data")):
        (tools.folder / "mapper" / mapping_of(osd, part, "").name).touch()
    tools.make("cryptsetup", f"[ $1 != close ] || rm {tools.folder}/mapper/$2")
    down = tools.script(PLAIN.take_down(two)["node0"])
    sh(down)
    assert sum(call[:2] == ["cryptsetup", "close"] for call in tools.calls) == 3
    assert list((tools.folder / "run").iterdir()) == []
    sh(down)
    assert sum(call[:2] == ["cryptsetup", "close"] for call in tools.calls) == 3


def test_only_what_is_proved_to_be_ours_is_destroyed(
    site_of: Callable[..., Site], osd: Callable[..., Osd], tools: Any, sh: Shell
) -> None:
    mine, other = osd(0, "node2", device="/disk/mine"), osd(1, "node2", device="/disk/theirs")
    tools.make("blkid", "echo crypto_LUKS")
    down = PLAIN.take_down(site_of(mine, other))["node2"]
    sh(tools.script(down))
    changes = [call for call in tools.calls if call[0] in ("cryptsetup", "wipefs")]
    assert changes == [
        ["cryptsetup", "luksErase", "--batch-mode", "/disk/mine"],
        ["wipefs", "-q", "-a", "/disk/mine"],
    ]


REQUIREMENTS = """\
has cryptsetup
has dmsetup
has blkid
has wipefs
cryptsetup 2.7.5 flags: UDEV BLKID KEYRING KERNEL_CAPI HW_OPAL
crypt            v1.28.0
kernel 6.12.117+deb13-cloud-amd64
on tmpfs
on tmpfs
"""
ALL = Luks.model_validate({**dict.fromkeys(FLAGS, True), "sector_size": 4096})


@pytest.mark.parametrize(
    ("overlay", "old", "new", "sentence"),
    [
        (ALL, "", "", None),
        (PLAIN, "has cryptsetup\n", "", "cryptsetup is missing; install cryptsetup-bin"),
        (PLAIN, "has dmsetup\n", "", "dmsetup is missing; install dmsetup"),
        (PLAIN, "on tmpfs\n", "on ext2/ext3\n", "so there is no place for keys; mount one"),
        (PLAIN, "on tmpfs\non tmpfs", "on ext2/ext3\non ramfs", None),
        (PLAIN, "crypt            v1.28.0\n", "", "6.12.117+deb13-cloud-amd64, has no dm-crypt"),
        (PLAIN, "cryptsetup 2.7.5", "cryptsetup 2.0.6", "luks needs cryptsetup 2.1.0, and its"),
        (PLAIN, "v1.28.0", "v1.14.0", None),
        (
            Luks(no_write_workqueue=True),
            "v1.28.0",
            "v1.19.0",
            "no_write_workqueue needs dm-crypt 1.22.0 (Linux 5.9), and its kernel, "
            "6.12.117+deb13-cloud-amd64, has dm-crypt 1.19.0",
        ),
        (
            Luks(no_read_workqueue=True),
            "cryptsetup 2.7.5",
            "cryptsetup 2.3.3",
            "no_read_workqueue needs cryptsetup 2.3.4, and its cryptsetup is 2.3.3",
        ),
        (
            Luks(submit_from_crypt_cpus=True),
            "v1.28.0",
            "v1.13.0",
            "luks needs dm-crypt 1.14.0 (Linux 4.0)",
        ),
        (Luks(sector_size=4096), "v1.28.0", "v1.16.0", "sector_size needs dm-crypt 1.17.0"),
        (Luks(submit_from_crypt_cpus=True), "v1.28.0", "v1.19.0", None),
    ],
)
def test_requirements(two: Site, overlay: Luks, old: str, new: str, sentence: Any) -> None:
    (need,) = overlay.requirements(two)
    assert need.hosts == ("node0",)
    said = need.judge(REQUIREMENTS.replace(old, new))
    assert said is None if sentence is None else sentence in str(said)


def test_the_facts_are_printed_whatever_is_missing(two: Site, sh: Shell) -> None:
    (need,) = PLAIN.requirements(two)
    printed = sh(need.script).splitlines()
    assert f"kernel {os.uname().release}" in printed
    assert [line.split()[0] for line in printed[-2:]] == ["on", "on"]


Output = Callable[[str], Mapping[str, str]]


@pytest.fixture
def output(data: Path) -> Output:
    def read(name: str) -> Mapping[str, str]:
        return {"node0": (data / "luks" / f"{name}.json").read_text()}

    return read


@pytest.mark.parametrize(
    ("overlay", "name"),
    [
        (ABSENT, "plain"),
        (TUNED, "submit_4k"),
        (Luks(sector_size=4096), "no_flags"),
        (ALL, "all_flags"),
    ],
)
def test_proved(two: Site, output: Output, overlay: Luks, name: str) -> None:
    verdict = overlay.judge(two, output(name), output(name))
    assert verdict.proved, verdict.reason
    assert verdict.reason == (
        "2 of 2 OSDs are on dm-crypt as configured"
        if overlay.is_present
        else "2 of 2 OSDs have no dm-crypt below"
    )
    assert verdict.evidence == json.loads(output(name)["node0"])


DATA = "cbt-crypto-d9b7ce01-osd.0-data"


@pytest.mark.parametrize(
    ("overlay", "name", "reason"),
    [
        (ABSENT, "no_flags", "which is encrypted (and 1 more)"),
        (PLAIN, "plain", f"osd.0 on node0: it does not have {DATA} open (and 1 more)"),
        (TUNED, "no_flags", f"{DATA} has flags none and not submit_from_crypt_cpus"),
        (
            Luks(sector_size=4096),
            "submit_4k",
            f"{DATA} has flags submit_from_crypt_cpus and not none",
        ),
        (PLAIN, "no_flags", f"{DATA} has sector_size 4096 and not 512"),
        (
            Luks(sector_size=4096, key_size=256),
            "no_flags",
            f"{DATA} has key_size 512 and not 256",
        ),
        (
            Luks(sector_size=4096, cipher="serpent-xts-plain64"),
            "no_flags",
            f"{DATA} has cipher aes-xts-plain64 and not serpent-xts-plain64",
        ),
    ],
)
def test_not_proved(two: Site, output: Output, overlay: Luks, name: str, reason: str) -> None:
    verdict = overlay.judge(two, output(name), output(name))
    assert not verdict.proved
    assert reason in verdict.reason


@pytest.mark.parametrize("flag", list(FLAGS))
def test_every_missing_flag_fails_the_proof(two: Site, output: Output, flag: str) -> None:
    opened_without = {"node0": output("all_flags")["node0"].replace(f" {flag}", "")}
    verdict = ALL.judge(two, output("all_flags"), opened_without)
    assert not verdict.proved
    assert f"{DATA} has flags " in verdict.reason


def _changed(output: Mapping[str, str], change: Callable[[Any], object]) -> Mapping[str, str]:
    facts = json.loads(output["node0"])
    change(facts["osd.1"])
    return {"node0": json.dumps(facts)}


def _also_raw(osd: Any) -> None:
    osd["opened"]["254:48"] = [{"device": "254:48", "name": "vdd"}]


def _without_dmsetup(osd: Any) -> None:
    layer = {"device": "253:7", "name": "dm-7", "mapping": "volume", "uuid": "x"}
    osd["opened"]["253:7"] = [{**layer, "table": None}]


@pytest.mark.parametrize(
    ("overlay", "name", "change", "reason"),
    [
        (TUNED, "submit_4k", lambda osd: osd.update(running=False, opened={}), "is not running"),
        (ABSENT, "plain", lambda osd: osd.update(running=False, opened={}), "is not running"),
        (ABSENT, "plain", lambda osd: osd.update(opened={}), "it has no device open"),
        (TUNED, "submit_4k", _also_raw, "it has 254:48 open as well"),
        (
            TUNED,
            "submit_4k",
            lambda osd: osd["named"].update(data="254:99"),
            "is on device 254:16 and not on 254:99",
        ),
        (ABSENT, "plain", _without_dmsetup, "it is on volume, and dmsetup does not say"),
    ],
)
def test_what_the_proof_does_not_let_pass(
    two: Site,
    output: Output,
    overlay: Luks,
    name: str,
    change: Callable[[Any], object],
    reason: str,
) -> None:
    good = output(name)
    bad = _changed(good, change)
    for looks in ((good, bad), (bad, good)):
        verdict = overlay.judge(two, *looks)
        assert not verdict.proved
        assert verdict.reason.startswith("1 of 2 OSDs ")
        assert "; osd.1 on node0: " in verdict.reason
        assert reason in verdict.reason


@pytest.mark.parametrize("printed", ["", "sudo: no", "null", "3"])
def test_a_silent_host_fails_the_proof(two: Site, printed: str) -> None:
    for overlay in (ABSENT, PLAIN):
        verdict = overlay.judge(two, {"node0": printed}, {})
        assert not verdict.proved
        assert "its host did not say what it has open" in verdict.reason


@pytest.mark.parametrize(
    ("uuid", "table", "proved"),
    [
        ("LVM-x", None, True),
        ("x", "0 2048 linear 254:16 0", True),
        ("x", "0 8 linear 254:16 0\n8 9 crypt aes-xts-plain64 :64:logon:x 0 254:0 0", False),
        ("CRYPT-PLAIN-x", None, False),
    ],
)
def test_mappings_below_an_unencrypted_osd(
    two: Site, output: Output, uuid: str, table: Optional[str], proved: bool
) -> None:
    layer = {"device": "253:7", "name": "dm-7", "mapping": "m", "uuid": uuid, "table": table}
    below = _changed(output("plain"), lambda osd: osd["opened"].update({"253:7": [layer]}))
    assert ABSENT.judge(two, below, below).proved is proved


def test_without_osds_only_absence_is_proved(site_of: Callable[..., Site]) -> None:
    assert ABSENT.judge(site_of(), {}, {}).proved
    assert not PLAIN.judge(site_of(), {}, {}).proved


def test_crypt_table() -> None:
    line = "0 6258688 crypt aes-xts-plain64 :64:logon:cryptsetup:aae15f02-d0 0 254:0 32768"
    bare = CryptTable("aes-xts-plain64", 512, "254:0", 512, frozenset())
    assert CryptTable.parse(line) == bare
    options = " 3 allow_discards integrity:28:aead sector_size:4096"
    full = CryptTable.parse(line + options)
    assert (full.sector_size, full.flags) == (4096, {"allow_discards"})
    with pytest.raises(ValueError, match="not a line of dm-crypt"):
        CryptTable.parse("0 2048 linear 8:1 0")


def test_swap_is_warned_of(two: Site, sh: Shell) -> None:
    (need,) = PLAIN.requirements(two)
    assert isinstance(need, DmCrypt)
    good = f"{REQUIREMENTS}swap /dev/sda2\nswap /swap\n"
    assert need.advice(REQUIREMENTS) is None
    assert need.judge(good) is None
    assert need.advice(good) == (
        "keys in memory may be written to swap (/dev/sda2, /swap); swapoff -a for the campaign"
    )
    assert sh("set -e\n" + need.script.splitlines()[-1]).count("zram") == 0
