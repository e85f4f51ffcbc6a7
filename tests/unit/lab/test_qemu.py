from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cbt_crypto.lab import vm
from cbt_crypto.lab.vm import Guest, Machine

pytestmark = pytest.mark.unit

GUEST = Guest(
    lab="trial",
    name="node1",
    kernel=Path("/i/vmlinuz"),
    system=Path("/i/system.ext4"),
    seed=Path("/l/node1/seed.tar"),
    disks=(Path("/l/node1/disks/osd-device-0"), Path("/l/node1/disks/osd-device-1")),
    memory=3 * 2**30,
    cpus=2,
    numa=1,
    threads=1,
    lab_address="10.231.0.11/24",
    lab_mac=vm.mac(1, lab_side=True),
    host_mac=vm.mac(1, lab_side=False),
    wires=(7, 8),
    ssh_port=22000,
    console=Path("/l/node1/console.log"),
)
TCG = Machine("tcg", (7, 2))


def values(command: list[str], option: str) -> list[str]:
    """All values of one option of a command line."""
    return [value for name, value in zip(command, command[1:]) if name == option]


@pytest.mark.parametrize(
    ("machine", "accelerator", "cpu"),
    [
        (Machine("tcg", (7, 2)), "tcg,thread=multi", "max,-avx2,-erms,-la57,-smap,-cx16"),
        (Machine("tcg", (10, 0)), "tcg,thread=multi", "max,-avx2,-erms,-la57,-smap"),
        (Machine("kvm", (7, 2)), "kvm", "host"),
    ],
)
def test_the_cpu_fits_the_accelerator_and_the_qemu(
    machine: Machine, accelerator: str, cpu: str
) -> None:
    command = vm.command(machine, GUEST)
    assert values(command, "-accel") == [accelerator]
    assert values(command, "-cpu") == [cpu]


def test_the_guest_is_told_who_it_is_by_its_kernel_command_line() -> None:
    (append,) = values(vm.command(TCG, GUEST), "-append")
    kernel, _, init = append.partition(" -- ")
    assert "root=PARTUUID=cb7c1ab0-01 " in kernel and "init=/usr/lib/cbt-crypto-lab/init" in kernel
    assert init.split() == [
        *("node1", "10.231.0.11/24", "52:54:00:cb:70:01"),
        *("10.0.2.15/24", "52:54:00:cb:71:01"),
    ]


def test_only_an_emulated_kernel_does_without_its_safety() -> None:
    emulated, real = (
        values(vm.command(Machine(accelerator, (7, 2)), GUEST), "-append")[0].split(" -- ")[0]
        for accelerator in ("tcg", "kvm")
    )
    assert {"norandmaps", "mitigations=off", "maxcpus=1"} <= set(emulated.split())
    assert not {"norandmaps", "mitigations=off", "maxcpus=1"} & set(real.split())


def test_the_shared_system_disk_is_never_written() -> None:
    drives = values(vm.command(TCG, GUEST), "-drive")
    assert [drive for drive in drives if "system.ext4" in drive] == [
        "if=none,id=system,format=raw,file=/i/system.ext4,snapshot=on"
    ]


def test_data_disks_carry_their_name_as_serial_number() -> None:
    command = vm.command(TCG, GUEST)
    disk = "if=none,id=disk1,format=raw,file=/l/node1/disks/osd-device-1,discard=unmap"
    assert f"{disk},werror=report" in values(command, "-drive")
    assert "virtio-blk-pci,drive=disk1,serial=osd-device-1" in values(command, "-device")


def test_a_full_disk_of_this_machine_stops_no_node() -> None:
    """QEMU stopped the node for good, and `lab run` waited for it, as each later command did."""
    drives = [drive for drive in values(vm.command(TCG, GUEST), "-drive") if "osd-device" in drive]
    assert [drive.rpartition(",")[2] for drive in drives] == ["werror=report"] * 2


def test_hyperthreads_are_told_in_a_way_that_an_emulated_cpu_has() -> None:
    command = vm.command(TCG, replace(GUEST, cpus=4, numa=2, threads=2))
    assert values(command, "-smp") == ["4,sockets=2,threads=2"]
    assert values(command, "-cpu")[0].endswith(",vendor=GenuineIntel")
    assert "vendor" not in values(vm.command(TCG, GUEST), "-cpu")[0]


def test_numa_nodes_have_cpus_memory_and_what_says_on_which_it_is() -> None:
    """Ceph pins to nodes of NVMe drives and of real network cards; virtio devices have none."""
    command = vm.command(TCG, replace(GUEST, cpus=4, numa=2))
    assert values(command, "-smp") == ["4,sockets=2,threads=1"]
    assert values(command, "-object") == [
        "memory-backend-ram,id=memory0,size=1536M",
        "memory-backend-ram,id=memory1,size=1536M",
    ]
    assert values(command, "-numa") == [
        "node,nodeid=0,cpus=0-1,memdev=memory0",
        "node,nodeid=1,cpus=2-3,memdev=memory1",
    ]
    devices = values(command, "-device")
    assert "pxb-pcie,id=pxb1,bus=pcie.0,bus_nr=56,numa_node=1" in devices
    for slot, node, device in (
        (1, 1, f"vmxnet3,netdev=lab,mac={GUEST.lab_mac},romfile="),
        (2, 1, f"vmxnet3,netdev=host,mac={GUEST.host_mac},romfile="),
        (3, 1, "nvme,drive=disk0,serial=osd-device-0"),
        (4, 0, "nvme,drive=disk1,serial=osd-device-1"),
    ):
        port = f"pcie-root-port,id=port{slot},bus=pxb{node},chassis={slot},slot={slot}"
        assert devices.index(port) < devices.index(f"{device},bus=port{slot}")
    assert not any(device.startswith(("virtio-blk", "virtio-net")) for device in devices)


def test_nodes_meet_over_sockets_without_a_name_and_loopback_leads_to_sshd_alone() -> None:
    networks = values(vm.command(TCG, GUEST), "-netdev")
    assert networks == [
        "hubport,id=lab,hubid=0",
        "socket,id=wire0,fd=7",
        "hubport,id=plug0,hubid=0,netdev=wire0",
        "socket,id=wire1,fd=8",
        "hubport,id=plug1,hubid=0,netdev=wire1",
        "user,id=host,restrict=on,hostfwd=tcp:127.0.0.1:22000-:22",
    ]


def test_the_only_node_of_a_lab_is_on_a_network_that_leads_nowhere() -> None:
    networks = values(vm.command(TCG, replace(GUEST, wires=())), "-netdev")
    assert networks[0] == "user,id=lab,restrict=on,ipv6=off"
    assert len(networks) == 2


def test_commas_in_paths_are_doubled() -> None:
    command = vm.command(TCG, replace(GUEST, seed=Path("/a,b/seed.tar"), disks=()))
    assert values(command, "-fw_cfg") == ["name=opt/cbt-crypto/seed,file=/a,,b/seed.tar"]


def test_the_probe_boots_without_disks_of_a_lab_and_tells_init_so() -> None:
    command = vm.probe_command(Machine("kvm", (7, 2)), GUEST.kernel, GUEST.system)
    assert values(command, "-append")[0].endswith(" -- probe")
    assert values(command, "-serial") == ["stdio"]
    assert len(values(command, "-drive")) == 1


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright", (7, 2)),
        ("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)", (10, 0)),
    ],
)
def test_the_version_is_read(text: str, version: tuple[int, int]) -> None:
    assert vm.parse_version(text) == version


def test_a_qemu_without_a_version_is_an_error() -> None:
    with pytest.raises(ValueError, match="no version"):
        vm.parse_version("command not found")
