"""What is told to daemons, clients and monitors of groups that stand side by side."""

from __future__ import annotations

import configparser
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.stack import BoundStack, Stack
from cbt_crypto.engine.choice import embedded
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.side_by_side import engine_keys
from cbt_crypto.plan.steps import Deploy, Prefill, plan
from cbt_crypto.run import take_down
from cbt_crypto.run.cell.watch import judged, moved
from cbt_crypto.run.targets import target_of
from cbt_crypto.run.targets.cluster import SideBySideCluster

pytestmark = pytest.mark.unit

SECTION = {
    "layout": "side_by_side",
    "configurations": {"crc": {}, "secure": {"secure_messenger": {}}, "LUKS": {"luks": {}}},
    "osds_per_node": 1,
    "settings": {"osd_memory_target": "8G"},
}
LOAD = {"rbd_single_client": {"time": 10}}


@pytest.fixture
def target(campaign_of: Callable[..., Campaign]) -> SideBySideCluster:
    return target_for(campaign_of(cluster=SECTION, benchmarks=LOAD))


def target_for(campaign: Campaign) -> SideBySideCluster:
    engine = embedded()
    engine.settings.cluster.clear()
    engine.settings.cluster.update(
        {**campaign.document["cluster"], **engine_keys(campaign.cluster)}
    )
    assert target_of(campaign.cluster) is SideBySideCluster
    remote = Remote(engine.common, campaign.cluster.tmp_dir, None)
    stacks = {name: Stack(overlays) for name, overlays in campaign.configurations.items()}
    made = SideBySideCluster(engine, remote, campaign.cluster, stacks)
    made.campaign = campaign  # type: ignore[attr-defined]
    return made


def bound(target: SideBySideCluster) -> BoundStack:
    return target._bound


def site_of(target: SideBySideCluster, name: str) -> Any:
    (scenario,) = [
        scenario
        for scenario in target.campaign.scenarios["rbd_single_client"]  # type: ignore[attr-defined]
        if scenario.configuration == name
    ]
    return target.measure_on(scenario)


def test_each_osd_speaks_as_its_group_and_monitors_with_all(target: SideBySideCluster) -> None:
    conf = bound(target).ceph_conf()
    assert conf["global"]["ms_mon_service_mode"] == "secure crc"
    modes = {osd.id: conf[f"osd.{osd.id}"]["ms_service_mode"] for osd in target.site.osds}
    secure = {osd.id for osd in site_of(target, "secure").osds}
    assert {osd for osd, mode in modes.items() if mode == "secure"} == secure
    assert set(modes.values()) == {"secure", "crc"}
    # those that are plain let the secure ones watch them
    plain = site_of(target, "LUKS").osds[0].id
    assert conf[f"osd.{plain}"]["ms_cluster_mode"] == "crc secure"


def test_clients_have_a_conf_for_each_group(target: SideBySideCluster) -> None:
    confs = bound(target).client_confs()
    for name, mode in (("crc", "crc"), ("secure", "secure"), ("LUKS", "crc")):
        site = site_of(target, name)
        assert site.conf.endswith(f"/ceph.{site.group}.conf")
        assert confs[site.group]["client"]["ms_client_mode"] == mode


def test_what_clients_encrypt_is_measured_as_it_was_filled(
    campaign_of: Callable[..., Campaign],
) -> None:
    """The images were made with dm-crypt, and measured without: no such cell was ever proved."""
    configurations = {"plain": {}, "LUKS": {"luks": {}}, "client": {"rbd_encryption": {}}}
    load = {"rbd_single_client": ..., "rbd_krbd": {"time": 10, "vol_size": 64}}
    campaign = campaign_of(cluster={**SECTION, "configurations": configurations}, benchmarks=load)
    target = target_for(campaign)
    planned = {volume for step in plan(campaign).steps if isinstance(step, Prefill)
               for volume in step.volumes}  # fmt: skip
    scenarios = campaign.scenarios["rbd_krbd"]
    measured = {one for each in scenarios for one in each.volumes(target.measure_on(each))}
    assert measured == planned
    assert sum(volume.encryption is not None for volume in measured) == 1


def test_only_osds_of_the_group_lie_on_dm_crypt(target: SideBySideCluster) -> None:
    encrypted = {osd.id for osd in site_of(target, "LUKS").osds}
    found = {
        osd.id
        for osd in target.site.osds
        if bound(target).osd_device(osd).startswith("/dev/mapper/cbt-crypto-")
    }
    assert found == encrypted and 0 < len(found) < len(target.site.osds)
    formatted = "\n".join(bound(target).before_osds().values())
    assert all((f"-osd.{osd.id}-data" in formatted) is (osd.id in encrypted)
               for osd in target.site.osds)  # fmt: skip


@pytest.mark.parametrize("name", list(SECTION["configurations"]))  # type: ignore[call-overload]
def test_clients_are_left_as_the_first_turn_wants_them(
    target: SideBySideCluster, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """They were as the last group wants them, so that the first turn was not proved."""
    monkeypatch.setattr(target.cluster, "initialize", lambda: None)
    target.change_to(Deploy(name, Transition.REBUILD, "first"), Transition.REBUILD)
    assert bound(target).groups[-1].site.group == site_of(target, name).group
    assert len(bound(target).groups) == 3


def test_pools_have_the_class_of_their_group(target: SideBySideCluster) -> None:
    site = site_of(target, "secure")
    assert {bound(target).device_class(osd) for osd in site.osds} == {site.group}
    assert bound(target).pool_class(site.pool("rbd")) == site.group
    assert bound(target).pool_class("rbd") is None


def test_pools_of_all_groups_are_placed_alike(target: SideBySideCluster) -> None:
    """Else one group would have the luckier draw of CRUSH, on every deployment anew."""
    first, other = site_of(target, "crc"), site_of(target, "secure")
    twins = bound(target).twins(first.pool("rbd"), other.pool("rbd"))
    by_id = {osd.id: osd for osd in target.site.osds}
    assert {by_id[osd] for osd in twins} == set(first.osds)
    assert {by_id[osd] for osd in twins.values()} == set(other.osds)
    for osd, twin in twins.items():
        assert (by_id[osd].host, by_id[osd].disk) == (by_id[twin].host, by_id[twin].disk)
    assert bound(target).twins(first.pool("rbd"), other.pool("data")) == {}
    assert bound(target).twins("rbd", other.pool("rbd")) == {}


def test_the_next_deployment_exchanges_the_slices(
    target: SideBySideCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = site_of(target, "secure")
    monkeypatch.setattr(target.cluster, "initialize", lambda: None)
    step = Deploy("secure", Transition.REBUILD, "deployment 2 of 3", deployment=1)
    target.change_to(step, target.transition(step))
    after = site_of(target, "secure")
    assert not {osd.id for osd in before.osds} & {osd.id for osd in after.osds}
    assert (before.slices, after.slices) == (0, 1)
    conf = bound(target).ceph_conf()
    assert {conf[f"osd.{osd.id}"]["ms_service_mode"] for osd in after.osds} == {"secure"}


def test_a_killed_run_is_cleared_of_every_group_s_mappings(target: SideBySideCluster) -> None:
    text = "\n".join(bound(target).take_down().values())
    assert all(f"-osd.{osd.id}-data" in text for osd in target.site.osds)
    # `cleanup` knows no more than the file
    cleared = take_down.cluster_of(target.campaign)
    assert cleared.site.osds == target.site.osds
    text = "\n".join(cleared.hooks.take_down().values())
    assert all(f"-osd.{osd.id}-data" in text for osd in target.site.osds)


@pytest.mark.parametrize(("size", "says"), [("2G", "ok"), ("900T", "2 OSDs side by side aim at")])
def test_memory_has_to_be_there_for_all_osds_of_a_host(
    target: SideBySideCluster, size: str, says: str
) -> None:
    section = target._section.model_copy(
        update={"settings": target._section.settings.model_copy(update={"osd_memory_target": size})}
    )
    campaign = replace(target.campaign, cluster=section)  # type: ignore[attr-defined]
    site = replace(target.site, osds=target.site.osds[:2])
    (need,) = [need for need in target.requirements(campaign, site, []) if need.name == "memory"]
    printed = subprocess.run(["sh", "-c", need.script], capture_output=True, text=True, check=True)
    assert printed.stdout.startswith(says)


PROOF = {"configuration": "secure", "proved": True, "overlays": []}


def _moved(size: int) -> dict[str, Any]:
    return {
        "host": "o0",
        "counters": {"client_read_bytes": size, "client_written_bytes": 0},
        "devices": [],
        "process": None,
        "cpu_ms": 30,
    }


def _judged(target: SideBySideCluster, placed: dict[str, Any], idle_bytes: int) -> dict[str, Any]:
    site = site_of(target, "secure")
    osds = {f"osd.{osd.id}": _moved(5 << 20) for osd in site.osds}
    osds |= {f"osd.{osd.id}": _moved(idle_bytes) for osd in site.idle}
    outcome = moved(site, osds, 10.0)
    assert set(outcome["storage"]) == {f"osd.{osd.id}" for osd in site.osds}
    assert set(outcome["idle"]) == {f"osd.{osd.id}" for osd in site.idle}
    found = judged(PROOF, site, placed, outcome)
    (verdict,) = found["overlays"]
    assert found["proved"] is verdict["proved"]
    return dict(verdict)


def test_a_group_is_proved_where_it_alone_was_loaded(target: SideBySideCluster) -> None:
    site = site_of(target, "secure")
    own = [osd.id for osd in site.osds]
    placed = {site.pool("rbd"): own, "rbd.group0": [site.idle[0].id]}
    assert _judged(target, placed, 4096)["proved"]
    assert "was to idle" in _judged(target, placed, 2 << 20)["reason"]
    strange = {site.pool("rbd"): [*own, site.idle[0].id]}
    assert f"is on osd.{site.idle[0].id}" in _judged(target, strange, 0)["reason"]
    assert "no answer says" in _judged(target, {}, 0)["reason"]
    assert not _judged(target, {site.pool("rbd"): []}, 0)["proved"]


def test_ceph_conf_can_be_read_back(target: SideBySideCluster) -> None:
    """Ceph's own reader takes sections of single daemons; so does Python's."""
    conf = configparser.RawConfigParser()
    conf.read_dict({name: dict(own) for name, own in bound(target).ceph_conf().items()})
    assert set(conf.sections()) == {"global", *(f"osd.{osd.id}" for osd in target.site.osds)}
    assert json.dumps(bound(target).client_confs())
