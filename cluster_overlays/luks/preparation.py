"""Prepare encrypted devices: what a host must offer, cryptsetup's commands, and their options."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from typing_extensions import override

from cbt_crypto.cluster_overlays.luks import opal
from cbt_crypto.cluster_overlays.luks.mapping import CryptMapping, crypt_of, devices_of
from cbt_crypto.hosts import directories, shell
from cbt_crypto.hosts.devices import destroy, lvm_and_md
from cbt_crypto.hosts.devices.lvm_and_md import Group, LogicalVolume
from cbt_crypto.hosts.devices.rbd_images import as_root
from cbt_crypto.hosts.keys_on_host import KEY_MOUNTS, NO_TMPFS
from cbt_crypto.hosts.requirement import SWAP, Judged, Requirement, swap_advice
from cbt_crypto.hosts.site import HostScripts, Osd, Site

#: Options that change on an open mapping, by dm-crypt's name, with cryptsetup's.
LIVE = {
    "allow_discards": "--allow-discards",
    "same_cpu_crypt": "--perf-same_cpu_crypt",
    "submit_from_crypt_cpus": "--perf-submit_from_crypt_cpus",
    "no_read_workqueue": "--perf-no_read_workqueue",
    "no_write_workqueue": "--perf-no_write_workqueue",
    "high_priority": "--perf-high_priority",
}

_KEYS = "umask 077\nkeys=$(key_directory make)\n"
# What others put there is not ours, whatever its name.
_KEYS_LEFT = "key_directories=$(key_directory present)\n"
_NO_KEYS_LEFT = '[ -z "$key_directories" ] || rmdir $key_directories 2>/dev/null || :'


@dataclass(frozen=True)
class Flags:
    """Flags of open mappings, by dm-crypt's names; `on_flash` are those that only flash gets."""

    everywhere: tuple[str, ...] = ()
    on_flash: tuple[str, ...] = ()


def make(
    mappings: Sequence[CryptMapping], formatting: Iterable[str], flags: Flags, tmp_dir: str,
    hw_opal: bool = False,
) -> str:  # fmt: skip
    """Keys, headers and open mappings; `formatting` are cryptsetup's options."""
    settings = _settings(
        FORMAT=formatting,
        FLAGS=map(LIVE.__getitem__, flags.everywhere),
        FLASH=map(LIVE.__getitem__, flags.on_flash),
        OPAL=["yes"] if hw_opal else [],
    )
    calls = shell.calling(__file__, _each("make", mappings))
    return destroy.luks(tmp_dir, settings + _KEYS + calls)


def refresh(mappings: Sequence[CryptMapping], flags: Flags) -> str:
    """Open mappings with other flags."""
    settings = _settings(
        FLAGS=map(LIVE.__getitem__, flags.everywhere),
        FLASH=map(LIVE.__getitem__, flags.on_flash),
        WANTED=flags.everywhere,
        FLASH_WANTED=flags.on_flash,
        KNOWN=["|".join(LIVE)],
    )
    calls = shell.calling(__file__, _each("refresh", mappings))
    return as_root(settings + directories.functions() + _KEYS + calls)


def remove(mappings: Sequence[CryptMapping], tmp_dir: str) -> str:
    """Close the mapping, erase its header and destroy its key; what is not there is no error."""
    settings = _settings(DRIVES=[opal.source()])
    close = _KEYS_LEFT + _each("close_luks", mappings) + _NO_KEYS_LEFT
    return destroy.luks(tmp_dir, settings + close)


def _settings(**options: Iterable[str]) -> str:
    return "".join(f"{name}={shlex.quote(' '.join(words))}\n" for name, words in options.items())


def _each(function: str, mappings: Sequence[CryptMapping]) -> str:
    calls = "".join(
        f'{function} {shlex.quote(mapping.name)} {shlex.quote(mapping.device)} & pids="$pids $!"\n'
        for mapping in mappings
    )
    wait = 'for pid in $pids; do wait "$pid" || failed=1; done'
    return f"pids=\n{calls}failed=0\n{wait}\n[ $failed = 0 ]\n"


Version = tuple[int, ...]

#: Prints one fact a line.
SCRIPT = shell.call(__file__, "facts", *KEY_MOUNTS) + "\n" + SWAP

_PACKAGES = {
    "cryptsetup": "cryptsetup-bin (cryptsetup elsewhere than in Debian)",
    "dmsetup": "dmsetup (device-mapper)",
    "blkid": "util-linux",
    "wipefs": "util-linux",
}


@dataclass(frozen=True)
class Since:
    """The first versions that know an option: the kernel's target (Linux `linux`), cryptsetup."""

    cryptsetup: Version
    target: Version
    linux: str


#: What the overlay needs whatever its options: refresh, forced iterations, labels.
BASE = Since((2, 1, 0), (1, 14, 0), "4.0")

OPTIONS: Mapping[str, Since] = {
    "allow_discards": Since((1, 4, 0), (1, 11, 0), "3.1"),
    "same_cpu_crypt": Since((1, 6, 7), (1, 14, 0), "4.0"),
    "submit_from_crypt_cpus": Since((1, 6, 7), (1, 14, 0), "4.0"),
    "sector_size": Since((2, 0, 0), (1, 17, 0), "4.12"),
    "no_read_workqueue": Since((2, 3, 4), (1, 22, 0), "5.9"),
    "no_write_workqueue": Since((2, 3, 4), (1, 22, 0), "5.9"),
    "high_priority": Since((2, 8, 0), (1, 26, 0), "6.10"),
    # Of OPAL the kernel's own option is looked at, on each drive.
    "hw_opal": Since((2, 7, 0), BASE.target, BASE.linux),
}


#: Those that are `--perf-` and their name to cryptsetup, whose help lists them.
_FLAGS = frozenset(name for name, option in LIVE.items() if option == f"--perf-{name}")


@dataclass(frozen=True)
class DmCrypt(Judged):
    """`options` are those of `OPTIONS` that are asked for."""

    options: tuple[str, ...] = ()

    @override
    def advice(self, output: str) -> Optional[str]:
        return None if self.judge(output) else swap_advice(output)

    @override
    def judge(self, output: str) -> Optional[str]:
        facts = output.splitlines()
        for program, package in _PACKAGES.items():
            if f"has {program}" not in facts:
                return f"{program} is missing; install {package}"
        if not {"on tmpfs", "on ramfs"} & set(facts):
            return NO_TMPFS
        kernel = _after("kernel ", facts) or "unknown"
        target = _version(_after("crypt ", facts))
        if target is None:
            return (
                f"its kernel, {kernel}, has no dm-crypt; take another kernel, or a lab of "
                "virtual machines"
            )
        cryptsetup = _after("cryptsetup ", facts) or ""
        unknown = self._unknown(facts)
        if unknown:
            return (
                f"{unknown} is none of the options of its cryptsetup, {cryptsetup}; leave it out, "
                "or install a newer one"
            )
        old = self._too_old(_version(cryptsetup) or (), target, kernel)
        if old is None and "hw_opal" in self.options and "HW_OPAL" not in cryptsetup.split():
            return (
                "hw_opal needs a cryptsetup that was built with it, which cryptsetup --version "
                "shows as HW_OPAL; install one, or leave hw_opal out"
            )
        return old

    def _unknown(self, facts: Iterable[str]) -> Optional[str]:
        """A flag that cryptsetup's own help does not list: one may be built without, or patched."""
        known = {line.removeprefix("knows ") for line in facts if line.startswith("knows ")}
        options = (option for option in self.options if option in _FLAGS)
        return next((option for option in options if known and option not in known), None)

    def _too_old(self, cryptsetup: Version, target: Version, kernel: str) -> Optional[str]:
        needs = {"luks": BASE, **{option: OPTIONS[option] for option in self.options}}
        for option, since in needs.items():
            if cryptsetup < since.cryptsetup:
                wanted, installed = _dots(since.cryptsetup), _dots(cryptsetup)
                return (
                    f"{option} needs cryptsetup {wanted}, and its cryptsetup is {installed}; "
                    f"{_instead(option, 'cryptsetup')}"
                )
            if target < since.target:
                return (
                    f"{option} needs dm-crypt {_dots(since.target)} (Linux {since.linux}), and "
                    f"its kernel, {kernel}, has dm-crypt {_dots(target)}; "
                    f"{_instead(option, 'kernel')}"
                )
        return None


def _instead(option: str, newer: str) -> str:
    other = "" if option == "luks" else f", or leave {option} out"
    return f"take a newer {newer}{other}"


def _after(prefix: str, lines: Iterable[str]) -> Optional[str]:
    return next((line[len(prefix) :] for line in lines if line.startswith(prefix)), None)


def _version(text: Optional[str]) -> Optional[Version]:
    match = re.search(r"(?<!\d)(\d+(?:\.\d+)+)", text or "")
    return tuple(int(part) for part in match[1].split(".")) if match else None


def _dots(version: Version) -> str:
    return ".".join(str(part) for part in version)


#: The name in the file.
NAME = "ceph-volume"
#: From Ceph 17.2.8 and 18.2.4 on, and everywhere that cryptsetup is 2.3.4 or newer.
FLAGS = Flags(("allow_discards",), ("no_read_workqueue", "no_write_workqueue"))
#: What a file cannot say beside it. All else 20.2's passes on to cryptsetup, if it is told to.
DECIDES = frozenset({"hw_opal", *FLAGS.everywhere, *FLAGS.on_flash})


def volume_of(osd: Osd, part: str, device: str) -> str:
    """The volume that the mapping of an OSD's "data" or "db" is on."""
    if lvm_and_md.is_ours(device):
        return device
    return lvm_and_md.path(_group(osd, device), f"osd.{osd.id}-{part}")


def on_volumes(osd: Osd, parts: Sequence[str]) -> Osd:
    """The OSD with the volumes in place of the devices."""
    if osd.is_file or osd.is_existing:
        return osd
    paths = {
        part: volume_of(osd, part, device) if part in parts else device
        for part, device in devices_of(osd).items()
    }
    return replace(osd, device=paths["data"], db_device=paths.get("db"))


def requirements(site: Site, parts: Sequence[str]) -> list[Requirement]:
    """LVM, on hosts where volumes are to be made."""
    hosts = tuple(_groups(site, parts))
    return [Requirement("lvm2", hosts, lvm_and_md.REQUIREMENT)] if hosts else []


def make_volumes(site: Site, parts: Sequence[str]) -> HostScripts:
    """Shell text that makes the volumes."""
    return {
        host: lvm_and_md.make_volumes(groups, _notes(site))
        for host, groups in _groups(site, parts).items()
    }


def remove_volumes(site: Site) -> HostScripts:
    """Shell text that removes what `make` made; safe to repeat."""
    hosts = dict.fromkeys(osd.host for osd in site.osds if not osd.is_file)
    return dict.fromkeys(hosts, lvm_and_md.remove_volumes(_notes(site)))


def fault(layers: Sequence[Mapping[str, Any]]) -> Optional[str]:
    """What contradicts that the mapping among these layers, top first, is on a volume."""
    for upper, lower in zip(layers, layers[1:]):
        if crypt_of(upper) is not None:
            is_volume = str(lower.get("uuid", "")).startswith("LVM-")
            return None if is_volume else f"{upper['mapping']} is not on a logical volume"
    return "its dm-crypt is on nothing that is known"


def _groups(site: Site, parts: Sequence[str]) -> dict[str, list[Group]]:
    by_host: dict[str, list[Group]] = {}
    for osd in site.osds:
        for part, device in devices_of(osd).items():
            if part in parts and not lvm_and_md.is_ours(device):
                volume = LogicalVolume(f"osd.{osd.id}-{part}")
                group = Group(_group(osd, device), device, (volume,))
                by_host.setdefault(osd.host, []).append(group)
    return by_host


def _group(osd: Osd, device: str) -> str:
    return lvm_and_md.group_name(os.path.dirname(osd.data_dir), osd.host, device)


def _notes(site: Site) -> str:
    return f"{site.tmp_dir}/volumes.luks"


#: "    aes-xts        512b      3105.7 MiB/s      3131.9 MiB/s", and N/A where there is none.
_LINE = re.compile(
    r"^\s*(?P<cipher>[\w-]+)\s+(?P<bits>\d+)b\s+(?P<encrypt>[\d.]+|N/A)(?: MiB/s)?"
    r"\s+(?P<decrypt>[\d.]+|N/A)(?: MiB/s)?\s*$"
)

_DISK_CIPHER = re.compile(r"^(xts|cbc|essiv)\(")


def script(cipher: str, key_size: int) -> str:
    """Shell text that measures a cipher as dm-crypt spells it; prints nothing where it cannot."""
    name = "-".join(cipher.split("-")[:2])
    known = shlex.quote(": {2}({0})$".format(*name.partition("-")))
    words = f"cryptsetup benchmark --cipher {shlex.quote(name)} --key-size {key_size}"
    return (
        f"measure() {{ {words}; }}\n"
        # The first use since the boot loads the kernel's module, and tests it: 1.4 for 37 MiB/s.
        f"grep -qs {known} /proc/crypto || measure > /dev/null 2>&1 || :\nmeasure || :"
    )


def parse(output: str) -> list[dict[str, object]]:
    """A row for each cipher: its name, the key's bits, and MiB/s of both directions or None."""
    matches = (_LINE.match(line) for line in output.splitlines())
    return [
        {
            "cipher": match["cipher"],
            "key_bits": int(match["bits"]),
            "encrypt_mib_per_s": _speed(match["encrypt"]),
            "decrypt_mib_per_s": _speed(match["decrypt"]),
        }
        for match in matches
        if match
    ]


#: Ciphers that `cryptsetup benchmark` tries by itself, with the IV that disks take with them.
CANDIDATES = {
    (f"{cipher}-{mode}", bits): f"{cipher}-{mode}-{iv}"
    for mode, sizes, iv in (("cbc", (128, 256), "essiv:sha256"), ("xts", (256, 512), "plain64"))
    for cipher in ("aes", "serpent", "twofish")
    for bits in sizes
}


def table_script() -> str:
    """Shell text that measures every candidate."""
    return "\n".join(script(name, bits) for name, bits in CANDIDATES)


def best(outputs: Iterable[str]) -> tuple[str, int]:
    """Cipher (dm-crypt's spelling) and key size of the fastest candidate.

    It is as fast as its slower direction on the slowest host. ValueError if none ran everywhere.
    """
    slowest: dict[tuple[str, int], list[float]] = {}
    hosts = list(outputs)
    for row in (row for output in hosts for row in parse(output)):
        speeds = (row["encrypt_mib_per_s"], row["decrypt_mib_per_s"])
        if all(isinstance(speed, float) for speed in speeds):
            key = (str(row["cipher"]), int(str(row["key_bits"])))
            slowest.setdefault(key, []).append(min(float(str(speed)) for speed in speeds))
    speed_of = {
        key: min(of_hosts)
        for key, of_hosts in slowest.items()
        if key in CANDIDATES and len(of_hosts) == len(hosts)
    }
    if not speed_of:
        raise ValueError("cryptsetup benchmark measured no cipher on every host")
    name, bits = max(speed_of, key=lambda key: speed_of[key])
    return CANDIDATES[name, bits], bits


def drivers(proc_crypto: str) -> list[dict[str, object]]:
    """The driver that the kernel takes for each cipher: highest priority, self-test passed."""
    chosen: dict[str, dict[str, object]] = {}
    for block in proc_crypto.split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        facts = {key.strip(): value.strip() for key, _, value in pairs}
        name, priority = facts.get("name", ""), facts.get("priority", "")
        usable = facts.get("selftest") == "passed" and facts.get("internal") == "no"
        if not (_DISK_CIPHER.match(name) and priority.isdigit() and usable):
            continue
        if name not in chosen or int(priority) > int(str(chosen[name]["priority"])):
            chosen[name] = {
                "name": name,
                "driver": facts.get("driver"),
                "module": facts.get("module"),
                "priority": int(priority),
                "async": facts.get("async") == "yes",
            }
    return list(chosen.values())


def _speed(text: str) -> object:
    return None if text == "N/A" else float(text)
