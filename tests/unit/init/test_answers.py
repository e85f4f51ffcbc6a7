"""Hosts that answer `init` with what no host has: a sentence, or a value that is inert."""

from __future__ import annotations

import contextlib
import copy
import json
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import pytest
import yaml
from click.testing import CliRunner

from cbt_crypto.cli import cbt_crypto
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.remote import HostResult
from cbt_crypto.run.init import hardware, proposed
from cbt_crypto.run.init.command import write_new
from cbt_crypto.run.init.hardware import HostHardware
from cbt_crypto.run.init.proposed import propose, start_from
from cbt_crypto.run.preflight.survey import HostFinding

pytestmark = pytest.mark.unit

DRIVE: dict[str, Any] = {
    "name": "sdb", "path": "/dev/sdb", "type": "disk", "size": 10**12, "model": "M", "serial": "S",
    "rotational": False, "transport": "sas", "removable": False, "read_only": False, "numa": None,
    "links": ["/dev/disk/by-id/wwn-0x5000"], "mounts": [], "content": [], "volumes": [],
    "partitions": 0, "osd": None,
}  # fmt: skip
NETWORK: dict[str, Any] = {"name": "eth0", "address": "10.0.0.7/24", "mtu": 1500, "speed": 1000,
                           "numa": None, "hardware": True}  # fmt: skip
ANSWER: dict[str, Any] = {
    "system": "Debian", "kernel": "6.1", "processor": "EPYC", "cpus": 8, "numa_nodes": 1,
    "memory": 1 << 36, "free": 1 << 36, "versions": {"fio": "3.39"}, "networks": [NETWORK],
    "drives": [DRIVE],
}  # fmt: skip
#: It ends a comment and writes a key of its own, which root would run.
LINE = "x\n  ceph_build: {prefix: /tmp/his}\n  # \x1b]0;owned\x07\x1b[31m\u202e\x85\u2028"


class Hosts:
    """Every host answers with this text; the guard says nothing against a drive."""

    def __init__(self, text: str) -> None:
        self.text = text

    def attempt(self, scripts: Mapping[str, str], timeout: float) -> dict[str, HostResult]:
        return {host: HostResult(self.text, "", 0) for host in scripts}


def look(monkeypatch: pytest.MonkeyPatch, text: str) -> list[HostHardware]:
    monkeypatch.setattr(hardware, "survey", lambda remote, hosts, checks: _nothing_against(checks))
    remote: Any = Hosts(text)
    return hardware.read_hardware(remote, ["h"], "/var/lib/cbt-crypto")


def _nothing_against(checks: Any) -> Any:
    return [HostFinding(check.column.partition(" ")[0], check.column, "ok") for check in checks]


def changed(place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    document = copy.deepcopy(ANSWER)
    section: Any = document
    for key in place[:-1]:
        section = section[key]
    section[place[-1]] = value
    return document


PLACES: list[tuple[Any, ...]] = [
    *((key,) for key in ANSWER),
    *(("drives", 0, key) for key in DRIVE),
    *(("networks", 0, key) for key in NETWORK),
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: str(place[-1]))
def test_a_text_writes_no_key_into_the_file(
    monkeypatch: pytest.MonkeyPatch, place: tuple[Any, ...]
) -> None:
    """The name of a network stood in a comment as the host said it."""
    texts = {"links": [f"/dev/disk/by-id/{LINE}"], "versions": {LINE: LINE}}
    value = texts.get(place[-1], [LINE] if isinstance(_at(place), list) else LINE)
    written = []
    for document in (changed(place, value), _spare(changed(place, value))):
        try:
            proposal = propose(look(monkeypatch, json.dumps(document)))
        except UsageError as error:
            assert str(error).isprintable()
            continue
        text = proposed.text(proposal, start_from(None, proposal, None), "c", None, "x")
        assert text.replace("\n", "").isprintable()
        written.append(yaml.safe_load(text))
    assert not any("ceph_build" in document["cluster"] for document in written)


def test_a_text_that_printing_makes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was checked once more, when a host's own name came to it: a traceback."""
    for place in PLACES:
        if isinstance(_at(place), str):
            with contextlib.suppress(UsageError):
                look(monkeypatch, json.dumps(changed(place, "\x1b" * 1100)))
    (host,) = look(monkeypatch, json.dumps(changed(("drives", 0, "serial"), "\x1b" * 1100)))
    assert len(host.drives[0].serial) == 4096


def _at(place: tuple[Any, ...]) -> Any:
    value: Any = ANSWER
    for key in place:
        value = value[key]
    return value


def _spare(document: dict[str, Any]) -> dict[str, Any]:
    """With more drives of another kind, of which the file speaks in comments alone."""
    if isinstance(document["drives"], list):
        others = [{**DRIVE, "path": f"/dev/sd{n}", "model": "N"} for n in "cd"]
        return {**document, "drives": [*document["drives"], *others]}
    return document


@pytest.mark.parametrize("value", [None, [], {}, -1, 10**400, 1e308, "x", True, [[]], [{}]],
                         ids=repr)  # fmt: skip
@pytest.mark.parametrize("place", PLACES, ids=lambda place: str(place[-1]))
def test_any_value_at_any_key(
    monkeypatch: pytest.MonkeyPatch, place: tuple[Any, ...], value: Any
) -> None:
    try:
        propose(look(monkeypatch, json.dumps(changed(place, value))))
    except UsageError as error:
        assert str(error).startswith("h: ") and "\n" not in str(error)


@pytest.mark.parametrize("text", ["", "[]", "null", "[" * 100_000, "{}", '"x"', " " * (17 << 20)],
                         ids=lambda text: repr(text[:8]))  # fmt: skip
def test_an_answer_that_is_none(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    with pytest.raises(UsageError, match=r"^h: answered with"):
        look(monkeypatch, text)


@pytest.mark.parametrize("part", ["drives", "networks"])
def test_parts_that_no_host_has_so_many_of(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """A host's 80,000 networks were compared for a day; a script was made for each drive."""
    document = {**ANSWER, part: ANSWER[part] * 3000}
    with pytest.raises(UsageError, match=rf"^h: answered with what no host has, at {part}"):
        look(monkeypatch, json.dumps(document))


@pytest.mark.parametrize("status", [None, 1])
def test_what_it_says_without_end(monkeypatch: pytest.MonkeyPatch, status: Optional[int]) -> None:
    """Of 60 MB in one line all were printed."""
    result = HostResult("", "x" * 10_000_000, status)
    monkeypatch.setattr(hardware.Remote, "attempt", lambda *_: {"h": result})
    with pytest.raises(UsageError) as said:
        hardware.read_hardware(hardware.Remote(None, "/t"), ["h"], "/t")  # type: ignore[arg-type]
    assert str(said.value).startswith("h: cannot be ") and len(str(said.value)) < 500


def test_where_a_host_does_not_answer_no_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that did not answer only that was said, and the file was looked for."""
    monkeypatch.setattr(hardware.Remote, "attempt", lambda *_: {"h": HostResult("", "no", None)})
    path = tmp_path / "c.yaml"
    done = CliRunner().invoke(cbt_crypto, ["init", "--hosts=h", "-o", str(path)])
    assert done.exit_code == 2 and not path.exists()
    said = done.output.replace("\n", "")
    assert f"{path}: not written, as all hosts have to answer" in said
    assert "docs/own-hosts.md says what hosts need" in said


@pytest.mark.parametrize("user", ["-oProxyCommand=x", LINE, "a b", ""], ids=repr)
def test_a_user_that_is_none(tmp_path: Path, user: str) -> None:
    """It was given to ssh, and would have been written into the file, as it was."""
    words = ["init", "--hosts=localhost", f"--user={user}", "-o", str(tmp_path / "c.yaml")]
    done = CliRunner().invoke(cbt_crypto, words)
    assert done.exit_code == 2 and "is no name of a user" in done.output
    assert not (tmp_path / "c.yaml").exists()


def test_a_full_disk_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    """The next `init` refused to write, as the empty file was there already."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(UsageError, match=r"c\.yaml: File too large; name another file with -o"):
            write_new(tmp_path / "c.yaml", "x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())
    (tmp_path / "c.yaml").write_text("his")
    with pytest.raises(UsageError, match="File exists"):
        write_new(tmp_path / "c.yaml", "x")
    assert (tmp_path / "c.yaml").read_text() == "his"
