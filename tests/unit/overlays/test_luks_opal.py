"""LUKS on self-encrypting drives, by what cryptsetup's sources and the kernel's headers say.

No such drive was there to try it on, so its answers are made up here.
"""

from __future__ import annotations

import gzip
import json
import shlex
import stat
import struct
import sys
from pathlib import Path
from typing import Any, Callable, Optional

import pytest
from pydantic import ValidationError

from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.luks import opal as luks_opal
from cbt_crypto.cluster_overlays.luks import opal_on_host
from cbt_crypto.cluster_overlays.luks.mapping import mapping_of, mapping_of_drive
from cbt_crypto.cluster_overlays.luks.overlay import Luks
from cbt_crypto.cluster_overlays.luks.preparation import DmCrypt
from cbt_crypto.hosts.site import Drive, Osd, Site

pytestmark = pytest.mark.unit

ONLY = Luks(hw_opal="only")
BOTH = Luks(hw_opal="with_dm_crypt", sector_size=4096)
Shell = Callable[[str], str]


# -- what the file may say ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"hw_opal": True},
        {"hw_opal": "on"},
        {"hw_opal": "only", "cipher": "aes-xts-plain64"},
        {"hw_opal": "only", "allow_discards": True},
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Luks.model_validate(options)


def test_what_only_dm_crypt_knows_is_named() -> None:
    with pytest.raises(ValidationError, match="leave out key_size, sector_size"):
        Luks(hw_opal="only", sector_size=512, key_size=256)


def test_a_change_takes_a_new_cluster() -> None:
    assert ONLY.transition_to(BOTH) == Luks().transition_to(ONLY) == Transition.REBUILD
    assert BOTH.transition_to(Luks(sector_size=4096)) == Transition.REBUILD
    flagged = BOTH.model_copy(update={"allow_discards": True})
    assert BOTH.transition_to(flagged) == Transition.LIVE


# -- formatting and tearing down -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overlay", "words"),
    [
        (ONLY, "--hw-opal-only --force-password --pbkdf pbkdf2 --pbkdf-force-iterations 1000"),
        (
            BOTH,
            "--hw-opal --force-password --cipher aes-xts-plain64 --key-size 512 --sector-size 4096 "
            "--pbkdf pbkdf2 --pbkdf-force-iterations 1000",
        ),
    ],
)
def test_a_drive_is_formatted_with_an_admin_key_on_the_standard_input(
    two: Site, tools: Any, sh: Shell, overlay: Luks, words: str
) -> None:
    last = "for last; do :; done"
    keep = f'cat > "{tools.folder}/read-$(basename "$last")"'
    tools.make("cryptsetup", f"{last}; [ $1 != luksFormat ] || {keep}")
    sh(tools.script(overlay.before_osds(two)["node0"]))
    osd = two.osds[1]
    name = mapping_of(osd, "data", "").name
    keys = tools.folder / "run/cbt-crypto"
    own = [call for call in tools.calls if call[0] == "cryptsetup" and osd.device in call]
    assert own == [
        shlex.split(
            f"cryptsetup luksFormat --batch-mode --type luks2 {words} "
            f"--uuid 11111111-2222-4333-8444-555555555555 --label {name} "
            f"--key-file {keys}/{name} {osd.device}"
        ),
        shlex.split(f"cryptsetup open --type luks --key-file {keys}/{name} {osd.device} {name}"),
    ]
    admins = [path.read_text() for path in keys.glob("*.opal")]
    assert len(set(admins)) == 3 and {len(one) for one in admins} == {32}
    read = (tools.folder / f"read-{Path(osd.device).name}").read_text()
    assert read == (keys / f"{name}.opal").read_text()
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys.iterdir()} == {0o600}
    log = (tools.folder / "log").read_text()
    assert not any(admin in log for admin in admins)


def test_a_key_that_a_drive_may_have_already_is_not_lost(two: Site, tools: Any, sh: Shell) -> None:
    keys = tools.folder / "run/cbt-crypto"
    keys.mkdir(mode=0o700)
    path = keys / f"{mapping_of(two.osds[1], 'data', '').name}.opal"
    path.write_text("of a run that was killed")
    sh(tools.script(ONLY.before_osds(two)["node0"]))
    assert path.read_text() == "of a run that was killed"


def test_others_get_no_admin_key(two: Site, tools: Any, sh: Shell) -> None:
    sh(tools.script(Luks().before_osds(two)["node0"]))
    assert list((tools.folder / "run").rglob("*.opal")) == []


def _python(tools: Any, ending: str) -> None:
    """A python3 that notes what it is asked to do with a drive; asked for keys, the real one."""
    path = tools.folder / "bin" / "python3"
    real = f'[ "$5" != present ] || exec {sys.executable} "$@"'
    path.write_text(
        f'#!/bin/sh\n{real}\nshift 4; echo "drive $*" >> {tools.folder}/log\n{ending}\n'
    )
    path.chmod(0o755)


def test_taking_down_erases_the_range_and_resets_the_drive(
    two: Site, tools: Any, sh: Shell
) -> None:
    sh(tools.script(ONLY.before_osds(two)["node0"]))
    _python(tools, "exit 0")
    before = len(tools.calls)
    # also when it is a configuration without any encryption that comes next
    down = tools.script(Luks.absent().take_down(two)["node0"])
    sh(down)
    device, name = two.osds[1].device, mapping_of(two.osds[1], "data", "").name
    admin = f"{tools.folder}/run/cbt-crypto/{name}.opal"
    own = [call for call in tools.calls[before:] if device in call]
    assert own == [
        ["cryptsetup", "luksErase", "--batch-mode", "--key-file", admin, device],
        ["drive", "revert", device, admin],
        ["blkid", "-p", "-s", "TYPE", "-o", "value", device],
        ["wipefs", "-q", "-a", device],
    ]
    assert list((tools.folder / "run").iterdir()) == []
    sh(down)
    reverted = [call for call in tools.calls if call[:2] == ["drive", "revert"]]
    assert [call[2] for call in reverted].count(device) == 1


def test_the_key_of_a_drive_that_cannot_be_reset_is_kept(two: Site, tools: Any, sh: Shell) -> None:
    sh(tools.script(ONLY.before_osds(two)["node0"]))
    _python(tools, "case $* in *device-1*) exit 1 ;; esac")
    said = sh(f"({tools.script(ONLY.take_down(two)['node0'])}) 2>&1 || echo status $?")
    assert "is kept in" in said and "use the PSID on its label\nstatus 1" in said
    (kept,) = (tools.folder / "run/cbt-crypto").glob("*.opal")
    assert kept.name == f"{mapping_of(two.osds[1], 'data', '').name}.opal"


def test_the_sent_program_is_whole(two: Site, tools: Any, sh: Shell) -> None:
    """Through both levels of quoting, with a real python3: a file is no drive, so nobody's."""
    disk = tools.folder / "disk"
    disk.write_bytes(b"data")
    site = Site("/t", "/c", "n", ("n",), (Osd(0, "n", str(disk), "/tmp/cbt/osd.0", "/a", "/p"),))
    keys = tools.folder / "run/cbt-crypto"
    keys.mkdir(mode=0o700)
    (keys / f"{mapping_of(site.osds[0], 'data', '').name}.opal").write_text("k" * 32)
    sh(tools.script(ONLY.take_down(site)["n"]))
    assert [call[0] for call in tools.calls] == ["cryptsetup", "blkid", "wipefs"]


# -- what hosts and drives must offer -------------------------------------------------------------

FRESH = {
    "kernel": "6.12.0", "config": True, "partition": False, "namespaces": [], "ours": False,
    "flags": 0x03,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, None),
        ({"config": None}, None),
        ({"flags": 0x43}, None),
        ({"flags": 0x07, "ours": True}, None),
        ({"flags": 0}, "/dev/x is not a self-encrypting drive (OPAL); not on this machine"),
        ({"flags": 0x01}, "is not a self-encrypting drive"),
        ({"config": False}, "its kernel, 6.12.0, has no CONFIG_BLK_SED_OPAL"),
        ({"partition": True}, "/dev/x is a partition, and tearing hw_opal down resets the whole"),
        ({"namespaces": ["nvme0n2"]}, "/dev/x is on one drive with nvme0n2, and tearing hw_opal"),
        ({"flags": 0x07}, "cryptsetup erase --hw-opal-factory-reset /dev/x and the PSID"),
        ({"flags": 0x0F}, "has its OPAL locking enabled by somebody"),
        ({"error": "Permission denied"}, "cannot be asked about OPAL (Permission denied)"),
    ],
)
def test_drives(change: dict[str, Any], sentence: Optional[str]) -> None:
    need = luks_opal.OpalDrive("OPAL", ("h",), "", device="/dev/x")
    output = json.dumps({**FRESH, **change})
    said, advice = need.judge(output), need.advice(output)
    if sentence is None:
        assert said is None and need.shown(output) == "ok"
        assert advice is not None and "only the PSID that is printed on its label" in advice
    else:
        assert sentence in str(said)
        assert advice is None and need.shown(output) == "no"


@pytest.mark.parametrize("output", ["", "sudo: a password is required", "[]", "{}"])
def test_a_drive_that_nobody_could_ask(output: str) -> None:
    need = luks_opal.OpalDrive("OPAL", ("h",), "", device="/dev/x")
    assert str(need.judge(output)).startswith("/dev/x cannot be asked about OPAL (")


def test_every_encrypted_device_is_asked(two: Site, sh: Shell) -> None:
    needs = [need for need in ONLY.requirements(two) if isinstance(need, luks_opal.OpalDrive)]
    devices = [two.osds[0].device, two.osds[0].db_device, two.osds[1].device]
    assert [need.device for need in needs] == devices
    # for real: there is no such device here
    assert "(No such file or directory); name the drive" in str(needs[0].judge(sh(needs[0].script)))
    assert not any(isinstance(need, luks_opal.OpalDrive) for need in Luks().requirements(two))


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        ("2.7.5 flags: UDEV BLKID KEYRING KERNEL_CAPI HW_OPAL", None),
        ("2.6.1 flags: UDEV BLKID KEYRING KERNEL_CAPI", "hw_opal needs cryptsetup 2.7.0, and its"),
        ("2.7.0 flags: UDEV BLKID KEYRING KERNEL_CAPI", "a cryptsetup that was built with it"),
    ],
)
def test_cryptsetup(two: Site, version: str, sentence: Optional[str]) -> None:
    need = next(need for need in BOTH.requirements(two) if isinstance(need, DmCrypt))
    programs = "".join(f"has {name}\n" for name in ("cryptsetup", "dmsetup", "blkid", "wipefs"))
    said = need.judge(f"{programs}cryptsetup {version}\ncrypt  v1.28.0\nkernel 6.12\non tmpfs\n")
    assert said is None if sentence is None else sentence in str(said)


# -- the proof ------------------------------------------------------------------------------------


def _layer(name: str, table: str, uuid: str = "CRYPT-LUKS2-OPAL-7e1f") -> dict[str, str]:
    return {"device": "253:0", "name": "dm-0", "mapping": name, "uuid": f"{uuid}-{name}",
            "table": table}  # fmt: skip


LINEAR = "0 6258688 linear 254:16 32768"
CRYPT = "0 6258688 crypt aes-xts-plain64 :64:logon:x 0 254:16 32768 1 sector_size:4096"
OPAL = {"flags": 0x07, "segments": ["hw-opal"]}


@pytest.fixture
def one(site_of: Callable[..., Site], osd: Callable[..., Osd]) -> Site:
    return site_of(osd(0, "node0", device="/dev/sdx"), clients=("node0",))


def _printed(site: Site, table: str, opal: Any, uuid: str = "CRYPT-LUKS2-OPAL-7e1f") -> Any:
    layers = [_layer(mapping_of(site.osds[0], "data", "").name, table, uuid)]
    facts = {"running": True, "named": {"data": "254:16"}, "opened": {"253:0": layers}}
    text = json.dumps({"osd.0": facts})
    return {"node0": f"{text}\n@opal\n{json.dumps({'osd.0': {'data': opal}})}" if opal else text}


@pytest.mark.parametrize(
    ("overlay", "table", "opal", "claim"),
    [
        (ONLY, LINEAR, OPAL, "1 of 1 OSDs are on drives that encrypt by themselves"),
        (BOTH, CRYPT, {**OPAL, "segments": ["hw-opal-crypt"]}, "are on dm-crypt over OPAL"),
    ],
)
def test_proved(one: Site, overlay: Luks, table: str, opal: Any, claim: str) -> None:
    output = _printed(one, table, opal)
    verdict = overlay.judge(one, output, output)
    assert verdict.proved and claim in verdict.reason
    assert verdict.evidence["osd.0"]["opal"] == {"data": opal}


@pytest.mark.parametrize(
    ("overlay", "output", "reason"),
    [
        (ONLY, (LINEAR, None), "the drive of its data did not say whether it encrypts"),
        (ONLY, (LINEAR, {"error": "Input/output error"}), "did not say whether it encrypts"),
        (ONLY, (LINEAR, {**OPAL, "flags": 0x03}), "OPAL locking is not enabled on the drive of"),
        (ONLY, (LINEAR, {**OPAL, "segments": []}), "has segments none and not hw-opal"),
        (ONLY, (LINEAR, {**OPAL, "segments": ["hw-opal-crypt"]}), "segments hw-opal-crypt and not"),
        (ONLY, (LINEAR, OPAL, "CRYPT-LUKS2-7e1f"), "is not on a drive that encrypts by itself"),
        (ONLY, (LINEAR.replace(":16", ":32"), OPAL), "is on device 254:32 and not on 254:16"),
        (ONLY, (CRYPT, OPAL), "is not one stretch of a drive"),
        (ONLY, (f"{LINEAR}\n{LINEAR}", OPAL), "is not one stretch of a drive"),
        (BOTH, (LINEAR, OPAL), "is not dm-crypt"),
        (BOTH, (CRYPT, OPAL, "CRYPT-LUKS2-7e1f"), "is not on a drive that encrypts by itself"),
        (BOTH, (CRYPT, OPAL), "has segments hw-opal and not hw-opal-crypt"),
        (Luks(sector_size=4096), (CRYPT, None), "is on a drive that encrypts by itself (OPAL)"),
        (Luks.absent(), (LINEAR, None), "which is encrypted"),
    ],
)
def test_not_proved(one: Site, overlay: Luks, output: Any, reason: str) -> None:
    printed = _printed(one, *output)
    verdict = overlay.judge(one, printed, printed)
    assert not verdict.proved and reason in verdict.reason


def test_a_drive_without_ceph_is_proved_too() -> None:
    drive = Drive("D", "h", ("/dev/sdx",), "/f", path="/dev/mapper/m")
    site = Site("/t", "/c", "h", ("h",), (), drives=(drive,))
    layers = [_layer(mapping_of_drive(drive, "data", "").name, LINEAR)]
    facts = {"running": True, "named": {"data": "254:16"}, "opened": {"253:0": layers}}
    opal = json.dumps({"drive D": {"data": OPAL}})
    name = next(iter(_names(ONLY, site)))
    output = {"h": f"{json.dumps({name: facts})}\n@opal\n{opal.replace('drive D', name)}"}
    assert ONLY.judge(site, output, output).proved


def _names(overlay: Luks, site: Site) -> dict[str, Any]:
    """What the probe asks for, by name."""
    words = shlex.split(overlay.probe(site)["h"].partition("<<")[0])
    asked: dict[str, Any] = json.loads(words[-1])
    return asked


def test_a_cluster_of_somebody_else_proves_nothing_of_it(
    one: Site, site_of: Callable[..., Site], osd: Callable[..., Osd]
) -> None:
    theirs = site_of(osd(0, "node0", device="/dev/sdx", is_existing=True), clients=("node0",))
    output = _printed(one, LINEAR, OPAL)
    assert "only of drives that the campaign" in ONLY.judge(theirs, output, output).reason


def test_the_probe_asks_the_drives_for_real(one: Site, sh: Shell) -> None:
    text = sh(ONLY.probe(one)["node0"])
    assert json.loads(text.partition("@opal")[2]) == {
        "osd.0": {"data": {"error": "No such file or directory"}}
    }
    assert "@opal" not in Luks().probe(one)["node0"]


# -- on the host ----------------------------------------------------------------------------------


def test_numbers_are_those_of_the_kernel_s_header() -> None:
    read, write, kind = 2 << 30, 1 << 30, ord("p") << 8
    assert read | struct.calcsize("II") << 16 | kind | 236 == opal_on_host.GET_STATUS
    assert write | struct.calcsize(opal_on_host.KEY) << 16 | kind | 226 == opal_on_host.REVERT_TPR


def test_what_is_no_drive_has_no_opal(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    assert opal_on_host.flags(str(path)) == 0
    found = opal_on_host.drive(str(path), [str(path)])
    assert (found["flags"], found["ours"], found["partition"]) == (0, True, False)


class Device:
    """Answers the two ioctls; `reset` is the TCG status that it gives a reset."""

    def __init__(self, flags: int, reset: int) -> None:
        self.flags = flags
        self.reset = reset
        self.keys: list[bytes] = []

    def ioctl(self, device: Any, number: int, argument: bytearray) -> int:
        if number == opal_on_host.GET_STATUS:
            argument[:4] = struct.pack("I", self.flags)
            return 0
        assert number == opal_on_host.REVERT_TPR and isinstance(argument, bytearray)
        _, length, key = struct.unpack(opal_on_host.KEY, argument)
        self.keys.append(key[:length])
        if self.reset == 0:
            self.flags &= ~0x04
        return self.reset


@pytest.mark.parametrize(
    ("flags", "status", "ending"),
    [(0x07, 0, 0), (0x07, 1, 1), (0x03, 1, 0)],
)
def test_a_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, flags: int, status: int,
    ending: int,
) -> None:  # fmt: skip
    device = Device(flags, status)
    monkeypatch.setattr(opal_on_host.fcntl, "ioctl", device.ioctl)
    (tmp_path / "key").write_bytes(b"k" * 32)
    (tmp_path / "drive").write_bytes(b"")
    words = ["revert", str(tmp_path / "drive"), str(tmp_path / "key")]
    assert opal_on_host.main(words) == ending
    assert device.keys == [b"k" * 32]
    said = f"{tmp_path}/drive cannot be reset (OPAL status 1)\n" if ending else ""
    assert capsys.readouterr().err == said


def test_a_drive_that_is_gone_is_not_reset(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "key").write_bytes(b"k" * 32)
    assert opal_on_host.main(["revert", f"{tmp_path}/gone", f"{tmp_path}/key"]) == 1
    assert capsys.readouterr().err == (
        f"{tmp_path}/gone cannot be reset (No such file or directory)\n"
    )


def test_segments_of_a_header(programs: Callable[[str, str], Path]) -> None:
    programs("cryptsetup", 'echo \'{"segments": {"0": {"type": "hw-opal"}}}\'')
    assert opal_on_host.segments("/dev/x") == ["hw-opal"]
    programs("cryptsetup", "echo no header >&2; exit 1")
    assert opal_on_host.segments("/dev/x") == []


def test_other_namespaces_of_a_drive(tmp_path: Path) -> None:
    for name in ("nvme0n1", "nvme0n1p1", "nvme0n2", "nvme0c0n1", "nvme01n1", "nvme1n1", "sda"):
        (tmp_path / name).mkdir()
    assert opal_on_host.namespaces("nvme0n1", str(tmp_path)) == ["nvme0n2"]
    assert opal_on_host.namespaces("nvme1n1", str(tmp_path)) == []
    assert opal_on_host.namespaces("sda", str(tmp_path)) == []


def test_the_option_of_the_kernel(tmp_path: Path) -> None:
    def option() -> Optional[bool]:
        return opal_on_host.has_option("6.1", str(tmp_path), str(tmp_path))

    assert option() is None
    (tmp_path / "config-6.1").write_text("A=y\n# CONFIG_BLK_SED_OPAL is not set\n")
    assert option() is False
    (tmp_path / "config.gz").write_bytes(gzip.compress(b"A=y\nCONFIG_BLK_SED_OPAL=y\n"))
    assert option() is True
