"""Data disks: sparse files named osd-device-N, the same for both kinds of node."""

from __future__ import annotations

from pathlib import Path

from cbt_crypto.lab.shape import Lab, Node


def make_disks(lab: Lab, node: Node) -> list[Path]:
    """Make the node's data disks, and return their paths."""
    directory = lab.node_dir(node) / "disks"
    directory.mkdir(parents=True, exist_ok=True)
    disks = [directory / f"osd-device-{number}" for number in range(lab.shape.disks)]
    for disk in disks:
        with disk.open("ab") as file:
            file.truncate(lab.shape.disk_size)
    return disks
