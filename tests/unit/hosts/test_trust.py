"""Who may write to what we trust: one question, asked everywhere."""

from __future__ import annotations

import grp
import os
import re
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Optional

import pytest

import cbt_crypto
from cbt_crypto.hosts import trust_on_host
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


def test_a_group_is_ours_that_is_private_or_root_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any group was: with TMPDIR=/srv/lab, root:lab 2775, its members ran what root had written."""
    groups = {0: ("root", []), 5: ("joe", []), 6: ("joe", ["eve"]), 7: ("lab", []), 8: ("eve", []),
              4: ("joe", [])}  # fmt: skip
    known = {"root": 0, "joe": 5, "eve": 9}
    users = [SimpleNamespace(pw_name=name, pw_gid=gid) for name, gid in
             (("joe", 5), ("eve", 4))]  # fmt: skip

    def group(gid: int) -> grp.struct_group:
        name, members = groups[gid]
        return grp.struct_group((name, "x", gid, list(members)))

    def user(name: str) -> SimpleNamespace:
        return SimpleNamespace(pw_uid=known[name])

    monkeypatch.setattr(trust_on_host.grp, "getgrgid", group)
    monkeypatch.setattr(trust_on_host.pwd, "getpwnam", user)
    monkeypatch.setattr(trust_on_host.pwd, "getpwall", lambda: users)
    open_to = os.stat_result((stat.S_IFDIR | 0o2775, 1, 1, 1, 5, 0, 0, 0, 0, 0))
    for gid in (*groups, 99):
        found = os.stat_result((*open_to[:5], gid, *open_to[6:]))
        wrong = distrust(found, (0, 5), is_group_ours=True)
        assert wrong == (None if gid in (0, 5) else OPEN), gid
        assert distrust(found, (0, 5), is_group_ours=True, groups=(gid,)) is None
        assert distrust(found, (0, 5)) == OPEN


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


def test_whatever_is_made_for_a_while_is_made_where_nobody_replaces_it() -> None:
    """ceph.conf and all keys were written into `$TMPDIR`, whoever could rename what is there."""
    root = Path(cbt_crypto.__file__).parent
    made = re.compile(r"tempfile\.(mkdtemp|mkstemp|TemporaryDirectory|NamedTemporaryFile)\([^\n]*")
    without = {
        (path.name, call[0])
        for path in root.rglob("*.py")
        for call in made.finditer(path.read_text(encoding="utf-8"))
        if "dir=" not in call[0]
    }
    # On a host's own /tmp.
    assert {name for name, _ in without} - {"ceph_options_on_host.py"} == set()
