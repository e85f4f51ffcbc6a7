"""Take the whole overlay of docs/write-an-overlay.md and use it; and check docs/overlays.md."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest

from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.cluster_overlays.base import Overlay, Transition
from cbt_crypto.hosts.site import Osd, Site

pytestmark = pytest.mark.unit

DOCS = Path(__file__).parents[3] / "docs"
DOCUMENT = DOCS / "write-an-overlay.md"
IN_FORCE = b'{"osd_op_num_shards": "8", "osd_op_num_threads_per_shard": "2", "osd_data": "/x"}'


@pytest.fixture(scope="module")
def example() -> Iterator[Any]:
    (source,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    module = types.ModuleType("op_queues_of_the_document")
    sys.modules[module.__name__] = module
    exec(compile(source, str(DOCUMENT), "exec"), module.__dict__)
    yield module.OpQueues
    del sys.modules[module.__name__]


def test_its_hooks(example: Any) -> None:
    overlay = example(shards=4)
    assert overlay.ceph_conf() == {
        "osd": {"osd_op_num_shards": "4", "osd_op_num_threads_per_shard": "2"}
    }
    assert overlay.transition_to(example(shards=5)) == Transition.RESTART
    assert overlay.transition_to(example(shards=4)) == Transition.NONE


@pytest.mark.parametrize(("shards", "proved"), [(8, True), (4, False)])
def test_its_proof(
    example: Any,
    daemon: Any,
    sh: Callable[[str], str],
    site_of: Callable[..., Site],
    osd: Callable[..., Osd],
    shards: int,
    proved: bool,
) -> None:
    daemon.payloads = [IN_FORCE]
    site = site_of(osd(0, "node0", admin_socket=daemon.path))
    overlay = example(shards=shards)
    look = {"node0": sh(overlay.probe(site)["node0"])}
    verdict = overlay.judge(site, look, look)
    assert verdict.proved is proved
    assert verdict.evidence["osd.0"]["osd_op_num_shards"] == "8"


def test_its_silence_proves_nothing(example: Any, site: Site) -> None:
    assert not example().judge(site, {}, {}).proved


def test_every_overlay_is_described_and_links_to_its_options() -> None:
    text = (DOCS / "overlays.md").read_text()
    changes = text.partition("\n## ")[0]
    for name, overlay in OVERLAYS.items():
        assert f"(#{name})" in changes, f"what a change of {name} takes is not in the first table"
        _, heading, rest = text.partition(f"\n## {name}\n")
        assert heading, f"no section on {name}"
        section = rest.partition("\n## ")[0]
        # file.md is generated from the models: test_reference.py.
        assert not overlay.model_fields or f"(file.md#{name})" in section


def test_every_hook_is_described() -> None:
    hooks = {
        hook
        for hook in vars(Overlay)
        if callable(getattr(Overlay, hook))
        and not hook.startswith(("_", "model_"))
        and hook not in ("absent", "make_absent")
    }
    table = DOCUMENT.read_text().partition("## The hooks")[2]
    assert {hook for hook in hooks if f"`{hook}`" not in table} == set()
