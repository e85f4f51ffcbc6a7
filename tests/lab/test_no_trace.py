"""That nothing stays of virtual machines, however they end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest
from real_labs import start_lab

from cbt_crypto.errors import RunError
from cbt_crypto.hosts import marked_processes
from cbt_crypto.lab import lifecycle, vm
from cbt_crypto.lab.shape import Kind, Lab, Shape, lab_dir

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

NAME = f"no-trace-{os.getpid()}"


def test_nothing_stays_when_it_is_down(two: Lab) -> None:
    """The last test of the machines that all share."""
    assert marked_processes.of_lab(two.directory)
    lifecycle.down(two.name)
    assert marked_processes.of_lab(two.directory) == []
    assert not two.directory.exists()
    for node in two.nodes:
        with socket.socket() as connection:
            assert connection.connect_ex((node.ssh_host, node.ssh_port)) != 0


def test_what_a_killed_start_leaves_is_cleared() -> None:
    name = f"{NAME}-killed"
    program = "from cbt_crypto.cli import cbt_crypto; cbt_crypto()"
    command = [sys.executable, "-c", program, "lab", "up", "--name", name, "--memory", "512M"]
    starting = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not marked_processes.of_lab(lab_dir(name)):
        assert starting.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    starting.kill()
    starting.wait()
    assert marked_processes.of_lab(lab_dir(name))
    assert lifecycle.down(name) is True
    assert marked_processes.of_lab(lab_dir(name)) == []
    assert not lab_dir(name).exists()


def test_a_port_that_is_taken_meanwhile_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{NAME}-port"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        monkeypatch.setattr(vm, "free_tcp_ports", lambda count: [port] * count)
        with pytest.raises(RunError, match=rf"node0 ended while it started: .*127\.0\.0\.1:{port}"):
            start_lab(
                name, Shape(kind=Kind.VM, nodes=1, disks=0, disk_size=1, memory=2**29, cpus=1)
            )
    assert marked_processes.of_lab(lab_dir(name)) == []
    lifecycle.down(name)
