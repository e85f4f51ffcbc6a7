"""What a host must offer for dm-crypt: cryptsetup, the kernel's target, and both new enough."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Optional

from typing_extensions import override

from cbt_crypto.cluster_overlays.luks.scripts import LIVE
from cbt_crypto.hosts.directories.keys_on_host import KEY_MOUNTS, NO_TMPFS
from cbt_crypto.hosts.requirement import SWAP, Fact, swap_advice

Version = tuple[int, ...]

#: Prints one fact a line. The module is loaded as cryptsetup itself would; it shows the version.
_FACTS = f"""
PATH=$PATH:/usr/sbin:/sbin
for program in cryptsetup dmsetup blkid wipefs; do
    command -v $program > /dev/null && echo "has $program"
done
cryptsetup --version 2> /dev/null || :
cryptsetup --help 2> /dev/null | grep -o -- '--perf-[a-z_]*' | sed 's/^--perf-/knows /' || :
$SUDO modprobe -q dm-crypt 2> /dev/null || :
$SUDO dmsetup targets 2> /dev/null | grep '^crypt ' || :
echo "kernel $(uname -r)"
for mount in {" ".join(KEY_MOUNTS)}; do
    echo "on $(stat -f -c %T $mount 2> /dev/null || :)"
done
"""
SCRIPT = _FACTS.strip() + "\n" + SWAP

_PACKAGES = {
    "cryptsetup": "cryptsetup-bin (cryptsetup elsewhere than in Debian)",
    "dmsetup": "dmsetup (device-mapper)",
    "blkid": "util-linux",
    "wipefs": "util-linux",
}


@dataclass(frozen=True)
class Since:
    """The first versions that know an option. A kernel counts by its target, as distributions
    add to old kernels; `linux` is the release that brought it, for people."""

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
class DmCrypt(Fact):
    """`options` are those of `OPTIONS` that are asked for."""

    options: tuple[str, ...] = ()

    @override
    def shown(self, output: str) -> str:
        return "no" if self.judge(output) else "ok"

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
    match = re.search(r"(\d+(?:\.\d+)+)", text or "")
    return tuple(int(part) for part in match[1].split(".")) if match else None


def _dots(version: Version) -> str:
    return ".".join(str(part) for part in version)
