"""KVM is believed after a boot, and asked once: a stand-in for QEMU counts and answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cbt_crypto.errors import UsageError
from cbt_crypto.lab import vm
from cbt_crypto.lab.image import Image
from cbt_crypto.lab.shape import Steps
from cbt_crypto.lab.vm import Machine

pytestmark = pytest.mark.unit

_QEMU = """\
#!/bin/sh
[ "$1" = --version ] && { echo "QEMU emulator version 7.2.0"; exit; }
echo boot >> "$BOOTS"
"""


@pytest.fixture
def install_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Put a QEMU on PATH that boots as the given shell text says; returns its log of boots."""

    def install(boot: str) -> Path:
        program = tmp_path / "bin" / "qemu-system-x86_64"
        program.parent.mkdir(exist_ok=True)
        program.write_text(_QEMU + boot)
        program.chmod(0o755)
        boots = tmp_path / "boots"
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        monkeypatch.setenv("BOOTS", str(boots))
        monkeypatch.setattr(vm, "KVM", program)
        return boots

    return install


@pytest.fixture
def image(cache: Path) -> Image:
    directory = cache / "images" / "0123456789ab"
    directory.mkdir(parents=True)
    return Image(directory)


def steps() -> Steps:
    return Steps(Console(file=StringIO()))


def test_kvm_is_used_where_a_guest_reaches_userspace(
    install_qemu: Callable[[str], Path], image: Image
) -> None:
    install_qemu("echo cbt-crypto-lab-probe")
    assert vm.detect(image, steps()) == Machine("kvm", (7, 2))


def test_a_guest_that_ends_without_reaching_userspace_means_tcg(
    install_qemu: Callable[[str], Path], image: Image
) -> None:
    install_qemu("echo Kernel panic - not syncing")
    assert vm.detect(image, steps()) == Machine("tcg", (7, 2))


def test_a_guest_that_hangs_means_no_kvm(install_qemu: Callable[[str], Path], image: Image) -> None:
    install_qemu("exec sleep 60")
    assert vm.probe(Machine("kvm", (7, 2)), image, timeout=0.3) is False


def test_without_the_device_nothing_is_booted(
    install_qemu: Callable[[str], Path],
    image: Image,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    boots = install_qemu("echo cbt-crypto-lab-probe")
    monkeypatch.setattr(vm, "KVM", tmp_path / "no-kvm")
    assert vm.detect(image, steps()) == Machine("tcg", (7, 2))
    assert not boots.exists()


def test_the_answer_is_remembered(install_qemu: Callable[[str], Path], image: Image) -> None:
    boots = install_qemu("echo Kernel panic - not syncing")
    first, second = vm.detect(image, steps()), vm.detect(image, steps())
    assert first == second
    assert boots.read_text().splitlines() == ["boot"]


def test_only_a_try_is_shown(install_qemu: Callable[[str], Path], image: Image) -> None:
    install_qemu("echo Kernel panic - not syncing")
    output = StringIO()
    for _ in range(2):
        with Steps(Console(file=output)) as shown:
            vm.detect(image, shown)
    assert output.getvalue().count("Trying KVM") == 1


def test_a_missing_qemu_is_said_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="install the package qemu-system-x86"):
        vm.check()
