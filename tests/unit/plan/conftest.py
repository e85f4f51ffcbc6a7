"""Overlays that do nothing but say what a change of them takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Callable, ClassVar, Optional

import pytest
from typing_extensions import Self

from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.cluster_overlays.base import Overlay, Transition
from cbt_crypto.hosts.site import HostScripts, Osd, Site
from cbt_crypto.plan.steps import Deploy, Measure, Plan, Prefill


class Live(Overlay):
    """Changes while the cluster runs."""

    name: ClassVar[str] = "live"

    value: int = 0

    @classmethod
    def absent(cls) -> Optional[Self]:
        return cls.make_absent(value=-1)

    def transition_to(self, new: Self) -> Transition:
        return Transition.NONE if self == new else Transition.LIVE

    def ceph_conf(self) -> Mapping[str, Mapping[str, str]]:
        return {"global": {"who": "live", "live": str(self.value)}}

    def wrap_osd(self, osd: Osd, command: str) -> str:
        return f"live {command}"

    def after_osds(self, site: Site) -> HostScripts:
        return {"o0": "echo live"}

    def take_down(self, site: Site) -> HostScripts:
        return {"o0": f"echo down live {self.value}; false; echo not here"}


class Restart(Live):
    """Changes when the daemons start again."""

    name: ClassVar[str] = "restart"

    def transition_to(self, new: Self) -> Transition:
        return Transition.NONE if self == new else Transition.RESTART

    def ceph_conf(self) -> Mapping[str, Mapping[str, str]]:
        return {"global": {"who": "restart"}, "osd": {"restart": "1"}}

    def wrap_osd(self, osd: Osd, command: str) -> str:
        return f"restart {command}"

    def take_down(self, site: Site) -> HostScripts:
        return {"o0": "echo down restart", "o1": "echo down restart"}


class Build(Overlay):
    """Lies under the OSDs; its absence cannot be stated."""

    name: ClassVar[str] = "build"

    def osd_device(self, osd: Osd, device: str) -> str:
        return f"{device}+build"


@pytest.fixture(autouse=True)
def toy_overlays() -> Iterator[None]:
    before = dict(OVERLAYS)
    OVERLAYS.clear()
    OVERLAYS.update({overlay.name: overlay for overlay in (Build, Live, Restart)})
    yield
    # in their order, which documents show
    OVERLAYS.clear()
    OVERLAYS.update(before)


@pytest.fixture
def overlay() -> Callable[..., Overlay]:
    """An overlay of that name and those options."""
    return lambda name, **options: OVERLAYS[name](**options)


@pytest.fixture
def steps_of() -> Callable[[Plan], list[str]]:
    """A plan's steps, a word or two each."""

    def word(step: Any) -> str:
        if isinstance(step, Deploy):
            return f"{step.how.name.lower()} {step.configuration}"
        if isinstance(step, Prefill):
            return f"prefill {len(step.volumes)}"
        assert isinstance(step, Measure)
        return f"measure {step.cell.configuration}"

    return lambda plan: [word(step) for step in plan.steps]
