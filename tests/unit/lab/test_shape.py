from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbt_crypto.lab.shape import Kind, Lab, Release, Shape, locked
from cbt_crypto.units import size_bytes, size_text

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "size"),
    [("8G", 8 * 2**30), ("512M", 2**29), ("3GiB", 3 * 2**30), ("1.5g", 3 * 2**29), ("700", 700)],
)
def test_sizes_are_binary(text: str, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "8X", "-1G", "G", "8 G B", "0x10"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size such as"):
        size_bytes(text)


@given(st.integers(min_value=1, max_value=2**50))
def test_a_size_written_is_read_back(size: int) -> None:
    assert size_bytes(size_text(size)) == size


def test_a_shape_describes_itself_as_options(shape: Shape) -> None:
    assert shape.describe() == (
        "--kind vm --ceph reef --nodes 3 --disks 2 --disk-size 8G --memory 3G --cpus 2"
    )
    bare = shape.model_copy(update={"kind": Kind.NAMESPACE, "disks": 0})
    assert bare.describe() == "--kind namespace --ceph reef --nodes 3 --disks 0"
    both = bare.model_copy(update={"also": (Release.TENTACLE,)})
    assert both.describe() == "--kind namespace --ceph reef --also tentacle --nodes 3 --disks 0"


def test_nodes_are_numbered_and_addressed_in_order(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(Kind.NAMESPACE)
    assert [(node.name, node.address) for node in lab.nodes] == [
        ("node0", "10.231.7.10"),
        ("node1", "10.231.7.11"),
        ("node2", "10.231.7.12"),
    ]
    assert [(node.ssh_host, node.ssh_port) for node in lab.nodes][1] == ("10.231.7.11", 22)
    assert lab.head.name == "node0"


def test_a_lab_survives_its_record(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    assert Lab.model_validate_json(lab.model_dump_json()) == lab


def test_nobody_else_can_hold_a_lock_of_ours(tmp_path: Path) -> None:
    """Who may read a file may lock it, and `lab up` waited without a word."""
    path = tmp_path / "network.lock"
    path.touch(0o644)
    with locked(path, "busy"):
        assert path.stat().st_mode & 0o777 == 0o600
