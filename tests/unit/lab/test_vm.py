from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cbt_crypto.errors import RunError
from cbt_crypto.hosts import marked_processes
from cbt_crypto.lab import access, vm
from cbt_crypto.lab.run import LabCampaign, follow
from cbt_crypto.lab.shape import Lab

pytestmark = pytest.mark.unit

_PANIC = """\
[    3.443037] Kernel panic - not syncing: VFS: Unable to mount root fs on "/dev/nvme0n1"
[    3.443858] CPU: 1 UID: 0 PID: 1 Comm: swapper/0 Not tainted 6.12.107+deb13-cloud-amd64
"""
_QEMU = """\
qemu-system-x86_64: -netdev user,id=host,hostfwd=tcp:127.0.0.1:22000-:22: warning: something
qemu-system-x86_64: Could not set up host forwarding rule 'tcp:127.0.0.1:22000-:22'
"""


def test_a_guest_s_end_is_explained_by_qemu_or_by_its_kernel(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    assert access.ending(lab, lab.head) is None
    lab.console(lab.head).write_text("booting\n")
    lab.qemu_log(lab.head).touch()
    assert access.ending(lab, lab.head) is None
    lab.console(lab.head).write_text(f"booting\n{_PANIC}")
    assert access.ending(lab, lab.head) == _PANIC.splitlines()[0]
    lab.qemu_log(lab.head).write_text(_QEMU)
    assert access.ending(lab, lab.head) == _QEMU.splitlines()[1]


def test_a_panic_is_what_is_said_of_a_connection_that_broke(
    make_lab: Callable[..., Lab], tmp_path: Path, programs: Callable[[str, str], Path]
) -> None:
    """ "Connection refused" was all, and to run the command again was what to do."""
    programs("ssh", "#!/bin/sh\necho Connection refused >&2\nexit 255\n")
    lab = make_lab()
    lab.qemu_log(lab.head).write_text("qemu-system-x86_64: warning: of no matter")
    environment = marked_processes.lab_environment(lab.node_dir(lab.head))
    with subprocess.Popen(["sleep", "60"], env={**os.environ, **environment}) as machine:
        with pytest.raises(RunError, match="node0: exit status 255: Connection refused"):
            access.run(lab, lab.head, "true")
        machine.kill()
    lab.qemu_log(lab.head).write_text("")
    with pytest.raises(RunError, match="its machine has ended: nothing says why"):
        access.run(lab, lab.head, "true")
    lab.console(lab.head).write_text(_PANIC)
    with pytest.raises(RunError, match=r"its machine has ended: .*Kernel panic - not syncing: VFS"):
        access.run(lab, lab.head, "true")
    job = LabCampaign(tmp_path / "c.yaml", tmp_path / "archive")
    with pytest.raises(RunError, match=r"has ended: .* Kernel panic .* lab down --name trial"):
        follow(lab, job)


def test_ports_are_free_and_not_given_twice() -> None:
    ports = vm.free_tcp_ports(8)
    assert len(set(ports)) == 8
    for port in ports:
        with socket.socket() as connection:
            assert connection.connect_ex(("127.0.0.1", port)) != 0


def test_a_port_that_somebody_listens_on_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        free = vm.free_tcp_ports(1)[0]
        monkeypatch.setattr(vm, "PORTS", [taken, free])
        assert vm.free_tcp_ports(1) == [free]
