"""Proofs of a stack: probed in one call, judged overlay by overlay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Optional

import pytest

from cbt_crypto.cluster_overlays.base import Overlay, Seen, Verdict, Watch
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.engine.embedded import common
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Site
from cbt_crypto.run.cell import proof

pytestmark = pytest.mark.unit


class Echo(Overlay):
    """Proved when it printed what it should."""

    name: ClassVar[str] = "echo"

    text: str = "hello"
    expected: str = "hello"

    def probe(self, site: Site) -> HostScripts:
        return {"localhost": f"variable=mine; printf '%s\\n' '{self.text}'"}

    def judge(self, site: Site, before: HostOutputs, after: HostOutputs) -> Verdict:
        said = (before.get("localhost"), after.get("localhost"))
        return Verdict(set(said) == {self.expected}, f"said {said}", {"said": list(said)})


class Other(Echo):
    """A second one."""

    name: ClassVar[str] = "other"


class Silent(Overlay):
    """Has nothing to probe."""

    name: ClassVar[str] = "silent"


class Watching(Echo):
    """What it sees is evidence too."""

    name: ClassVar[str] = "watching"

    def watch(self, site: Site) -> Mapping[str, Watch]:
        return {"localhost": Watch("def see(asked):\n    return [asked]\n", "a library")}

    def evidence_seen(self, site: Site, seen: Mapping[str, Sequence[Seen]]) -> Mapping[str, Any]:
        return {host: [look.value for look in looks] for host, looks in seen.items()}


@pytest.fixture
def judged(no_overlays: None, tmp_path: Path) -> Any:
    """A cell's proof, as real processes on this machine give it."""
    site = Site(str(tmp_path), "/c", "localhost", ("localhost",), ())

    def run(*overlays: Overlay) -> dict[str, Any]:
        cell = proof.CellProof(Remote(common, site.tmp_dir), Stack(overlays), site)
        cell.begin({})
        cell.end()
        return cell.judge("A", {})

    return run


def test_each_overlay_reads_its_own_output(judged: Any) -> None:
    found = judged(Echo(), Other(text="a\nb", expected="a\nb"), Silent())
    assert found["proved"] is True
    assert [one["overlay"] for one in found["overlays"]] == ["echo", "other", "silent"]
    assert found["overlays"][1]["evidence"] == {"said": ["a\nb", "a\nb"]}
    assert found["overlays"][0]["options"] == {"text": "hello", "expected": "hello"}


def test_one_that_is_not_proved_fails_the_whole(judged: Any) -> None:
    found = judged(Echo(), Other(text="no"))
    assert found["proved"] is False
    assert proof.failure(found) == ("the configuration is not proved: other: said ('no', 'no')")


def test_what_was_seen_stands_beside_what_was_probed(judged: Any) -> None:
    proved = judged(Watching())
    assert proved["proved"]
    assert proved["overlays"][0]["evidence"] == {
        "said": ["hello", "hello"], "localhost": [["a library"]],
    }  # fmt: skip


def test_a_stack_without_overlays_is_proved(judged: Any) -> None:
    found = judged()
    assert (found["configuration"], found["proved"], found["overlays"]) == ("A", True, [])


class Waiting(Remote):
    """Remembers how long answers were waited for."""

    def run(self, scripts: HostScripts, what: str, timeout: Optional[float] = None) -> HostOutputs:
        self.timeout = timeout
        return dict.fromkeys(scripts, "")


@pytest.mark.parametrize(("ceph_cmd", "limit_s"), [("ceph", 300), ("cephadm shell -- ceph", 1500)])
def test_who_starts_a_container_for_each_question_is_given_time(
    no_overlays: None, tmp_path: Path, ceph_cmd: str, limit_s: int
) -> None:
    site = Site(str(tmp_path), "/c", "localhost", ("localhost",), (), ceph_cmd=ceph_cmd)
    remote = Waiting(common, site.tmp_dir)
    proof.CellProof(remote, Stack((Echo(),)), site).begin({})
    assert remote.timeout == limit_s
