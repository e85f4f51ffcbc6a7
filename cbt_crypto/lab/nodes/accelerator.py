"""What this machine offers to virtual nodes: QEMU, and KVM where it really works."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.hosts.directories import cache_dir
from cbt_crypto.lab.image.image import Image
from cbt_crypto.lab.nodes import qemu
from cbt_crypto.lab.nodes.qemu import Machine
from cbt_crypto.lab.progress import Steps

#: A guest under KVM says that it runs after a second or two. Where KVM hangs, nothing comes.
_PROBE_S = 10
_PROBE_ANSWER = b"cbt-crypto-lab-probe"
#: What says that this machine has KVM.
KVM = Path("/dev/kvm")


def check() -> None:
    """Raise UsageError when QEMU is missing."""
    if not shutil.which(qemu.BINARY):
        raise UsageError(
            f"--kind vm needs {qemu.BINARY}; install the package {qemu.PACKAGE}, "
            "or use --kind namespace"
        )


def detect(image: Image, steps: Steps) -> Machine:
    """How guests shall run here. KVM is believed after a short boot with it, not before."""
    version = _version()
    kvm = Machine("kvm", version)
    if os.access(KVM, os.R_OK | os.W_OK):
        steps.begin("Trying KVM")
        if _remembered(kvm, image):
            return kvm
    return Machine("tcg", version)


def _version() -> tuple[int, int]:
    text = subprocess.run([qemu.BINARY, "--version"], capture_output=True, text=True, check=False)
    try:
        return qemu.parse_version(text.stdout)
    except ValueError as error:
        raise RunError(f"{qemu.BINARY} --version: {error}") from None


def _remembered(machine: Machine, image: Image) -> bool:
    """The probe's answer, kept until this machine boots again or its QEMU changes."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    case = f"{boot} {machine.qemu_version}"
    memory = cache_dir() / "kvm"
    try:
        remembered, _, answer = memory.read_text(encoding="ascii").partition(": ")
    except FileNotFoundError:
        remembered, answer = "", ""
    if remembered != case:
        answer = "works" if probe(machine, image) else "hangs"
        memory.write_text(f"{case}: {answer}", encoding="ascii")
    return answer == "works"


def probe(machine: Machine, image: Image, timeout: float = _PROBE_S) -> bool:
    """Whether a guest reaches userspace within `timeout` seconds."""
    command = qemu.probe_command(machine, image.kernel, image.system)
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
            env={**os.environ, "TMPDIR": str(image.directory)},
        )
    except subprocess.TimeoutExpired as error:
        return _PROBE_ANSWER in (error.stdout or b"")
    return _PROBE_ANSWER in result.stdout
