"""Who may write to what we trust: one question, asked everywhere."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Optional

import pytest

import cbt_crypto
from cbt_crypto.hosts.trust_on_host import distrust

pytestmark = pytest.mark.unit

OPEN = "can be written to by others"


def status(mode: int, uid: int = 5) -> os.stat_result:
    return os.stat_result((mode, 1, 1, 1, uid, 0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("found", "way", "group", "why"),
    [
        (status(stat.S_IFDIR | 0o755), False, False, None),
        (status(stat.S_IFDIR | 0o755, 6), False, False, "belongs to uid 6"),
        (status(stat.S_IFDIR | 0o755, 6), True, True, "belongs to uid 6"),
        (status(stat.S_IFDIR | 0o775), False, False, OPEN),
        (status(stat.S_IFDIR | 0o775), False, True, None),
        (status(stat.S_IFDIR | 0o777), True, True, OPEN),
        (status(stat.S_IFDIR | 0o1777), True, False, None),
        (status(stat.S_IFDIR | 0o1777), False, False, OPEN),
        (status(stat.S_IFREG | 0o602), False, True, OPEN),
        (status(stat.S_IFLNK | 0o777), False, False, None),
        (status(stat.S_IFLNK | 0o777, 6), False, False, "belongs to uid 6"),
    ],
)
def test_who_may_write(found: os.stat_result, way: bool, group: bool, why: Optional[str]) -> None:
    assert distrust(found, (0, 5), is_way=way, is_group_ours=group) == why


def test_nobody_asks_with_a_mask_of_his_own() -> None:
    package = Path(cbt_crypto.__file__).parent
    mask = re.compile(r"st_mode & (0o0?[0-7]*2\b|stat\.S_IW(GRP|OTH))")
    asking = [
        path.name
        for top in (package, package.parent / "cluster_overlays", package.parent / "benchmarks")
        for path in top.rglob("*.py")
        if mask.search(path.read_text(encoding="utf-8"))
    ]
    assert asking in ([], ["trust_on_host.py"])
