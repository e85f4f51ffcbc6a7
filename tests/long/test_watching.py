"""What the lab's tests look with: it finds what is there, and tells apart what only looks alike."""

from __future__ import annotations

import base64
import os
import runpy
from pathlib import Path
from typing import Any, Callable

import pytest

pytestmark = pytest.mark.unit

NAME = "id-0123abcd"
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def pattern() -> bytes:
    make: Callable[[str], bytes] = runpy.run_path(str(HERE / "pattern_client.py"))["pattern"]
    return make(NAME)


def test_the_pattern_is_4_mib_that_repeat_nowhere(pattern: bytes) -> None:
    assert len(pattern) == 4 << 20
    assert len({pattern[at : at + 64] for at in range(0, len(pattern), 64)}) == 1 << 16


def test_a_pattern_is_found_whole_in_a_sparse_disk_in_any_pieces(
    pattern: bytes, watch: Any, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        file.truncate(1 << 30)
        # Blocks of it, in another order and across the border of two pieces.
        for place, block in enumerate(range(1023, -1, -1)):
            file.seek((8 << 20) - 2048 + place * 4096)
            file.write(pattern[block * 4096 : (block + 1) * 4096])
    assert watch.units_in(watch.pieces(disk)) == {NAME: set(range(1 << 16))}
    assert disk.stat().st_blocks * 512 < 32 << 20


def test_nothing_is_found_where_it_is_scrambled(pattern: bytes, watch: Any, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(byte ^ 0x5A for byte in pattern))
    assert watch.units_in(watch.pieces(disk)) == {}


def test_a_packet_holds_most_of_its_units(pattern: bytes, watch: Any) -> None:
    frames = (b"\x52\x54header" + pattern[at : at + 1448] for at in range(0, len(pattern), 1448))
    assert len(watch.units_in(frames)[NAME]) > 0.9 * (1 << 16)


def test_a_secret_is_found_in_every_form(watch: Any) -> None:
    secret, other = os.urandom(64), os.urandom(64)
    for text in (
        b"x" + secret,
        secret[:20],
        b"key: " + secret.hex().encode(),
        secret.hex().upper().encode(),
        *(base64.b64encode(b"abc"[:shift] + secret) for shift in range(3)),
    ):
        assert watch.holds(text, [other, secret])
        assert not watch.holds(text, [other])
