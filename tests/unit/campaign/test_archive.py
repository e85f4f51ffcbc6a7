"""Files that are whole or not there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbt_crypto.archive.files import digest, hash_of, read_json, write_json

pytestmark = pytest.mark.unit

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4).filter(lambda key: key != "format"), JSON, max_size=4))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, value: dict[str, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "written" / "cell.json"
    write_json(path, value)
    assert read_json(path) == {"format": 1, **value}


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cell.json"
    write_json(path, {"state": "old"})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"state": "new"})
    assert json.loads(path.read_text())["state"] == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["cell.json"]


@pytest.mark.parametrize("text", ["", '{"state": "fin', "[1]", "\udcff", "null"])
def test_what_is_torn_is_not_there(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cell.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert read_json(path) is None
    assert read_json(tmp_path / "no.json") is None


@given(st.dictionaries(st.text(max_size=3), st.integers(), max_size=5))
def test_names_do_not_depend_on_the_order_of_keys(config: dict[str, int]) -> None:
    turned = dict(reversed(list(config.items())))
    assert hash_of(config) == hash_of(turned)
    assert digest(config) == digest(turned)
    assert hash_of({**config, "new": 1}) != hash_of(config)
    assert digest({**config, "new": 1}) != digest(config)


def test_names_do_not_collide_at_scale() -> None:
    """By 8 digits two of some 80,000 do; found here as anybody would find them."""
    seen: dict[str, int] = {}
    for number in range(400_000):
        name = hash_of({"op_size": number})
        assert len(name) == 16
        other = seen.setdefault(name[:8], number)
        if other != number:
            assert hash_of({"op_size": other}) != name
            return
    pytest.fail("no two have the same first 8 digits")
