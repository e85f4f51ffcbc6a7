"""Every command that destroys what is on a device, each behind the proof that the device is ours.

A path is never proof. Each function of destroy.sh first runs `prove` (proof_on_host.py): the device
is the one that was checked, has a uuid that we chose on it, and nobody uses it. Else it says so and
touches nothing. tests/unit/safety shows that no other module destroys.
"""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional, Union

from cbt_crypto.hosts import directories, shell
from cbt_crypto.hosts.devices import proof_on_host
from cbt_crypto.hosts.requirement import Judged, Requirement
from cbt_crypto.hosts.site import Site

#: The name of the notes in `tmp_dir`.
NOTES = "devices.json"
#: The key of upstream's benchmarks that names devices of clients.
BLOCK_DEVICES = "block_devices"
#: The label by which a file system is known to be ours. XFS takes 12 characters.
LABEL = "cbt-crypto"


def proof(tmp_dir: str) -> str:
    """Shell text that defines `prove`; it ends what follows it where something is not ours.

    `prove ready PATH WHAT` prints the uuid to give to what is made on the device, and `prove made
    PATH [UUID]` follows; for take-down, `prove where PATH` prints the device, or nothing.
    """
    return f'{_program()}prove() {{ ${{SUDO:-}} {_start(tmp_dir)} "$@"; }}\n'


def _program() -> str:
    return f"PROOF=$(cat <<\\PROOF_PROGRAM\n{shell.program(proof_on_host)}PROOF_PROGRAM\n)\n"


def _start(tmp_dir: str) -> str:
    return f'python3 -I -S -c "$PROOF" {shlex.quote(f"{tmp_dir}/{NOTES}")}'


def look(tmp_dir: str, device: str, key: str) -> str:
    """Shell text for the check: prints ok, `signature` and what the device carries, or why not."""
    return (
        f"{proof(tmp_dir)}prove look {shlex.quote(device)} {shlex.quote(key)} ||\n"
        "    echo 'cannot be read; install python3 and util-linux, and use a root user'"
    )


def identify(tmp_dir: str, devices: Iterable[str]) -> str:
    """Shell text that prints, as JSON by path, what tells these devices from others."""
    return f"{proof(tmp_dir)}prove identify {' '.join(map(shlex.quote, devices))}"


def record(tmp_dir: str, notes: Mapping[str, Any], tracked: Iterable[str] = ()) -> str:
    """Shell text that notes the devices of a run: path -> `identity`, `uuid` and `wipe`.

    Claims of other runs are dropped, unless one of the uuids `tracked` is theirs.
    """
    text = f"{proof(tmp_dir)}prove record {shlex.join((json.dumps(notes), *tracked))}"
    return text if notes else _if_noted(tmp_dir, text)


def forget(tmp_dir: str, uuids: Iterable[str]) -> str:
    """Shell text that drops the claims of runs whose notes have these uuids."""
    return _if_noted(tmp_dir, f"{proof(tmp_dir)}prove forget {shlex.join(uuids)}")


def _if_noted(tmp_dir: str, text: str) -> str:
    """`text` where there are notes: else none is claimed, as where OSDs are on files."""
    notes = shlex.quote(f"{tmp_dir}/{NOTES}")
    return f"if $SUDO test -e {notes} || $SUDO test -L {notes}; then\n{text}\nfi"


def restore(tmp_dir: str, notes: Mapping[str, Any]) -> str:
    """Shell text that puts back notes which were lost; those that are there stay."""
    return f"{proof(tmp_dir)}prove restore {shlex.quote(json.dumps(notes))}"


def claim(tmp_dir: str, devices: Iterable[str], discard: bool = False) -> str:
    """Shell text that claims devices, and wipes those that may be wiped or are to `discard`."""
    steps = ("claim {0} discard", "discard {0}") if discard else ("claim {0}",)
    return proved(tmp_dir, (step.format(shlex.quote(path)) for path in devices for step in steps))


def lend(tmp_dir: str, devices: Iterable[str]) -> str:
    """Shell text that claims devices, which others overwrite until they are emptied."""
    steps = ("claim {0}", "prove ready {0} lent > /dev/null")
    return proved(tmp_dir, (step.format(shlex.quote(path)) for path in devices for step in steps))


def empty_all(tmp_dir: str) -> str:
    """Shell text after which nothing of ours is on any device that a campaign has claimed."""
    return _if_noted(tmp_dir, proved(tmp_dir, ["empty_all"]))


def empty(tmp_dir: str, devices: Iterable[str]) -> str:
    """Shell text after which nothing of ours is on these devices."""
    calls = [f"empty {shlex.quote(path)} || bad=1" for path in devices]
    return proved(tmp_dir, ["bad=0", *calls, "[ $bad = 0 ]"])


def format_osds(tmp_dir: str, mkfs: Mapping[str, str]) -> str:
    """Format devices, each behind its proof; `mkfs`: device -> root's text, with `$uuid`."""
    calls = ["pids="]
    for device, text in mkfs.items():
        calls.append(f"uuid=$(prove ready {shlex.quote(device)} bluestore) || {{ wait; exit 1; }}")
        calls.append(f'(\n{text}\n) & pids="$pids $!"')
    calls.append('failed=0; for pid in $pids; do wait "$pid" || failed=1; done; [ $failed = 0 ]')
    calls += [f"prove made {shlex.quote(device)}" for device in mkfs]
    return proved(tmp_dir, calls)


def luks(tmp_dir: str, text: str) -> str:
    """`text` as root, with the functions that format, close and erase LUKS devices."""
    # What holds keys leaves no core.
    return proved(tmp_dir, ["ulimit -c 0", directories.functions() + text])


def file_system(tmp_dir: str, kind: str, device: str, mount_point: str) -> str:
    """Shell text that makes a file system, `ext4` or `xfs`, labelled as ours, and mounts it."""
    path = shlex.quote(device)
    mount = f"patiently mount {path} {shlex.quote(mount_point)}"
    return proved(tmp_dir, [f"make_{kind} {path} {LABEL}", mount])


def overwrite(tmp_dir: str, device: str) -> str:
    """Shell text that ends the script unless a device of ours may be overwritten from 1 MiB on."""
    return f"{proof(tmp_dir)}prove ready {shlex.quote(device)} '' > /dev/null"


def proved(tmp_dir: str, calls: Iterable[str]) -> str:
    """Shell text that runs calls of the functions of destroy.sh as root, in one start of Python."""
    text = "PATH=$PATH:/usr/sbin:/sbin\nSUDO=\n" + shell.calling(__file__, "\n".join(calls))
    notes = shlex.quote(f"{tmp_dir}/{NOTES}")
    return (
        f"{_program()}PROVED={shlex.quote(text)}\n"
        f'if [ "${{CBT_CRYPTO_PROVING-}}" = {notes} ]; then sh -euc "$PROVED"\n'
        f'else $SUDO {_start(tmp_dir)} serve sh -euc "$PROVED"; fi'
    )


def at_once(tmp_dir: str, text: str) -> str:
    """Return `text` with one start of Python for all its parts of `proved`, where root runs it."""
    word = "CBT_CRYPTO_AT_ONCE"
    shared = _program() + text.replace(_program(), "")
    return (
        f"{_program()}at_once=$(cat <<\\{word}\n{shared}\n{word}\n)\n"
        f'if [ -n "$SUDO" ]; then eval "$at_once"\n'
        f"else printf '%s\\n' SUDO= BARE_SUDO= \"$at_once\" | {_start(tmp_dir)} serve; fi"
    )


#: What the next boot may give to another drive.
_BY_ORDER = re.compile(
    r"/dev/(sd[a-z]+\d*|vd[a-z]+\d*|xvd[a-z]+\d*|hd[a-z]+\d*|nvme\d+n\d+(p\d+)?)"
)
#: Before the most bytes that a device discards at once; 0 where it cannot.
_DISC_MAX = "discards "


@dataclass(frozen=True)
class DeviceGuard(Judged):
    """One device of one host. `script` prints ok, `signature` and what it found, or a sentence."""

    device: str = ""
    #: The key of the file that names it.
    key: str = ""
    wipe: bool = False
    #: Whether it is to be discarded before each deployment.
    discard: bool = False

    def advice(self, output: str) -> Optional[str]:
        """Names that the kernel gives by the order in which it finds drives are no names."""
        if not _BY_ORDER.fullmatch(self.device) or self.judge(output):
            return None
        stable = output.partition("\nstable ")[2].partition("\n")[0]
        if not stable:
            return None
        return f"{self.device} may be another drive after a reboot; name it {stable}, which stays"

    def judge(self, output: str) -> Optional[str]:
        """None for a free device; and for one with signatures that may be wiped."""
        first = output.strip().partition("\n")[0]
        if first == "ok":
            return self._undiscardable(output)
        if not first.startswith("signature "):
            return f"{self.device} {first or 'cannot be read'}"
        if self.wipe:
            return self._undiscardable(output)
        signature = first.removeprefix("signature ")
        how = f"true, or wipe: [{self.device}], in the cluster section"
        if self.key == BLOCK_DEVICES:
            how = "true beside block_devices"
        return (
            f"{self.device} carries data ({signature}); name another device, or say wipe: {how} "
            "to have it overwritten"
        )

    def _undiscardable(self, output: str) -> Optional[str]:
        """Why it cannot be discarded where it is to be; None where it can."""
        if self.discard and not self.wipe and "\nsampled" in output:
            return (
                f"{self.device} seems to be empty, but only samples of it were looked at, and "
                f"discard destroys all of it; say wipe: true, or wipe: [{self.device}], in the "
                "cluster section"
            )
        most = output.partition("\n" + _DISC_MAX)[2].partition("\n")[0].strip()
        if not self.discard or (most.isdigit() and int(most)):
            return None
        return (
            f"{self.device} does not support discards (lsblk says DISC-MAX {most or 'nothing'}); "
            "leave discard out of the cluster section, or name another device"
        )


def device_guards(site: Site, wipe: Union[bool, Sequence[str]]) -> list[Requirement]:
    """A requirement for each block device named; `wipe`: whether, or which, may lose their data."""
    pairs = [(osd.host, device) for osd in site.osds for device in osd.devices]
    site = replace(site, wipe=wipe if isinstance(wipe, bool) else tuple(wipe))
    guards = [device_guard(site, host, device) for host, device in dict.fromkeys(pairs)]
    drives = {(drive.host, device) for drive in site.drives for device in drive.devices}
    return [
        *guards,
        *(device_guard(site, host, device, "drives") for host, device in sorted(drives - {*pairs})),
    ]


def device_guard(site: Site, host: str, device: str, key: str = "osd_devices") -> DeviceGuard:
    """The requirement for one device, which `key` of the file names."""
    script = look(site.tmp_dir, device, key)
    if site.discard:
        most = f"$(lsblk -bdnro DISC-MAX {shlex.quote(device)} 2> /dev/null)"
        script += f'\necho "{_DISC_MAX}{most}"'
    wipe, discard = _may_wipe(site.wipe, device), site.discard
    return DeviceGuard(
        f"device {device}", (host,), script, "devices", device=device, key=key, wipe=wipe,
        discard=discard,
    )  # fmt: skip


def _may_wipe(wipe: Union[bool, Sequence[str]], device: str) -> bool:
    if isinstance(wipe, bool):
        return wipe
    return any(fnmatch.fnmatchcase(device, pattern) for pattern in wipe)
