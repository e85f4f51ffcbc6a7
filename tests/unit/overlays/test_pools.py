"""Pools by other profiles: what is refused, and what the monitors' answers prove."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.pools import Pools
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.site import Site

pytestmark = pytest.mark.unit

SITE = Site("/t", "/t/c.conf", "a", ("a",), ())
CLUSTER: dict[str, Any] = {
    "osds_per_node": 3,
    "erasure_profiles": {"isa": {"erasure_k": 2, "erasure_m": 1, "erasure_plugin": "isa"}},
    "pool_profiles": {
        "rbd": {"pg_size": 8, "pgp_size": 8, "replication": 2},
        "data": {"pg_size": 16, "pgp_size": 16, "replication": 2},
        "pieces": {"pg_size": 16, "pgp_size": 16, "erasure_profile": "isa"},
        "packed": {"pg_size": 16, "pgp_size": 16, "replication": 2, "compression_mode": "force"},
    },
    "configurations": {
        "plain": {},
        "pieces": {"pools": {"data": "pieces"}},
        "packed": {"pools": {"data": "packed"}},
    },
}  # fmt: skip
BENCHMARKS = {"rbd_single_client": {"data_pool_profile": "data"}}


@pytest.fixture
def overlays(campaign_of: Any) -> dict[str, Pools]:
    campaign = campaign_of(cluster=CLUSTER, benchmarks=BENCHMARKS)
    return {name: next(each for each in of if isinstance(each, Pools))
            for name, of in campaign.configurations.items()}  # fmt: skip


def looks(acting: Any = ([0, 1], [2, 0]), objects: int = 4, **changes: Any) -> dict[str, str]:
    """As Ceph 16.2 answers: two replicas, sixteen placement groups."""
    pool = {"pool_name": "data", "size": 2, "pg_num": 16, "pg_placement_num": 16, "stripe_width": 0,
            "flags_names": "hashpspool", "options": {}, "last_change": "20", **changes}  # fmt: skip
    pgs = [{"acting": osds, "stat_sum": {"num_objects": objects}} for osds in acting]
    idle = {"acting": [1], "stat_sum": {"num_objects": 0}}
    dump = {"pools": [pool], "erasure_code_profiles": {"isa": {
        "k": "2", "m": "1", "plugin": "isa", "crush-failure-domain": "osd"}}}  # fmt: skip
    return {"a": f"{json.dumps(dump)}\n@pools\n{json.dumps({'pg_stats': [*pgs, idle]})}\n"}


PIECES = {"size": 3, "stripe_width": 8192, "flags_names": "ec_overwrites",
          "erasure_code_profile": "isa", "acting": ([0, 1, 2],)}  # fmt: skip


def test_each_configuration_is_proved_by_its_own_profile(overlays: dict[str, Pools]) -> None:
    plain, pieces, packed = looks(), looks(**PIECES), looks(options={"compression_mode": "force"})
    said_by_name = {"plain": plain, "pieces": pieces, "packed": packed}
    verdicts = {name: overlays[name].judge(SITE, said, said)
                for name, said in said_by_name.items()}  # fmt: skip
    assert {name: (verdict.proved, verdict.reason) for name, verdict in verdicts.items()} == {
        "plain": (True, "data has 2 replicas, 16 PGs, 8 objects"),
        "pieces": (True, "data is coded 2+1 by isa, 16 PGs, 4 objects"),
        "packed": (True, "data has 2 replicas, compression_mode force, 16 PGs, 8 objects"),
    }
    assert not overlays["plain"].judge(SITE, packed, packed).proved
    assert not overlays["pieces"].judge(SITE, plain, plain).proved
    said = overlays["packed"].judge(SITE, packed, plain)
    assert said.reason == "pool data: its compression_mode is None and not force"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"last_change": "21"}, "pool data: it was changed while the cell ran"),
        ({"acting": ([0, 1], [2, 1 << 31])}, "objects are on 1 OSDs and not on 2"),
        ({"objects": 0}, "it holds no objects"),
        ({"pg_num": 32}, "its pg_num is 32 and not 16"),
    ],
)
def test_what_is_otherwise_after_the_cell(
    overlays: dict[str, Pools], changes: Any, reason: str
) -> None:
    verdict = overlays["plain"].judge(SITE, looks(), looks(**changes))
    assert (verdict.proved, reason in verdict.reason) == (False, True)


def test_objects_that_the_manager_had_not_heard_of_before_the_cell(
    overlays: dict[str, Pools],
) -> None:
    """Seen on Ceph 18.2: managers are told of placement groups every five seconds."""
    assert overlays["plain"].judge(SITE, looks(acting=()), looks()).proved


def test_hosts_that_say_nothing(overlays: dict[str, Pools]) -> None:
    for said in ({}, {"a": ""}, {"a": "{}"}):
        assert not overlays["plain"].judge(SITE, said, said).proved
    assert overlays["plain"].probe(SITE)["a"].count("@pools") == 1


def test_another_profile_takes_a_new_cluster(overlays: dict[str, Pools]) -> None:
    plain, pieces = overlays["plain"], overlays["pieces"]
    assert plain.transition_to(pieces) is Transition.REBUILD
    assert plain.transition_to(plain) is Transition.NONE
    assert Stack((pieces,)).pool_profile("data") == "pieces"
    assert Stack((plain,)).pool_profile("data") == "data"


@pytest.mark.parametrize(
    ("cluster", "benchmarks", "sentence"),
    [
        ({"configurations": {"plain": {"pools": {}}}}, BENCHMARKS, "plain.pools: is empty"),
        (
            {"configurations": {"plain": {"pools": {"data": "piecs"}}}}, BENCHMARKS,
            'plain.pools.data: unknown pool profile "piecs"; did you mean "pieces"',
        ),
        (
            {"configurations": {"pieces": {"pools": {"rbd": "pieces"}}}},
            BENCHMARKS, "rbd is erasure-coded in pieces",
        ),
        ({"replication": [1, 2]}, BENCHMARKS, "replication: is a list, and pools names sizes"),
        (
            {"pool_profiles": {"data": {"allow_ec_optimizations": True}}}, BENCHMARKS,
            "data.allow_ec_optimizations: counts for erasure-coded pools alone",
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_together(
    campaign_of: Any, cluster: Any, benchmarks: Any, sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        campaign_of(cluster=_merged(CLUSTER, cluster), benchmarks=benchmarks)


def _merged(one: Any, other: Any) -> Any:
    if not isinstance(one, dict) or not isinstance(other, dict) or not one or not other:
        return other
    return {**one, **{key: _merged(one.get(key, value), value) for key, value in other.items()}}


def test_without_any_nothing_is_asked(campaign_of: Any) -> None:
    for overlays in campaign_of().configurations.values():
        assert not any(isinstance(each, Pools) for each in overlays)
    assert Pools.make_absent().probe(SITE) == {}
    assert Pools.make_absent().judge(SITE, {}, {}).proved
