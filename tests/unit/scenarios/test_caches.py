"""What a scenario asks of the OSDs' caches before its cells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cbt_crypto.benchmarks.rbd import RbdMultiClient
from cbt_crypto.hosts.site import Osd, Site

pytestmark = pytest.mark.unit

OSD = Osd(0, "s0", "/dev/x", "/d", "/s", "/p")


def test_caches_are_emptied_unless_the_cluster_is_somebody_s(site: Site) -> None:
    own, foreign = (replace(site, osds=(replace(OSD, is_existing=one),)) for one in (False, True))
    silent = RbdMultiClient(configuration="A")
    assert (silent.cache_state(own), silent.cache_state(foreign)) == ("drop", "as_is")
    for state in ("drop", "warm", "as_is"):
        said = RbdMultiClient(configuration="A", cache=state)
        assert (said.cache_state(own), said.cache_state(foreign)) == (state, state)


def test_every_volume_is_read_once(site: Site, commands: Any, fakes: Any) -> None:
    noted = fakes()
    scenario = RbdMultiClient(configuration="A", volumes_per_client=2, cache="warm")
    volumes = scenario.volumes(site)
    noted.run(scenario.warm_scripts(volumes, str(noted.directory), commands)["c0"])
    assert noted.status == 0, noted.stderr
    calls = [call for call in noted.calls if "--rw=read" in call]
    assert len(calls) == 2
    assert all(f"--size={volumes[0].size_mb}M" in call for call in calls)
