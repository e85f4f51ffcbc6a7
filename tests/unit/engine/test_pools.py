"""Erasure-coded pools: what is asked of the monitors, and how their answers are judged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cbt_crypto.engine.embedded import daemons
from cbt_crypto.plan.file.checks import origin_of
from cbt_crypto.plan.file.cluster import ClusterSection, PoolProfile
from cbt_crypto.plan.layout import pieces_of

pytestmark = pytest.mark.unit

REPLICAS = PoolProfile(replication=2)
ERASURE = PoolProfile(erasure_profile="ec", pg_size=16, pgp_size=16)
CODE = {"erasure_k": 2, "erasure_m": 1}

#: As Ceph 16.2 answers.
PROFILE = {
    "crush-device-class": "", "crush-failure-domain": "osd", "crush-root": "default",
    "jerasure-per-chunk-alignment": "false", "k": "2", "m": "1", "plugin": "jerasure",
    "technique": "reed_sol_van", "w": "8",
}  # fmt: skip
USED = {"pool": "ec", "pool_id": 2, "erasure_code_profile": "cbt-crypto-ec"}
SIZE = {"pool": "ec", "pool_id": 2, "size": 3}
OVERWRITES = {"pool": "ec", "pool_id": 2, "allow_ec_overwrites": True}
LISTED = [
    {"pool_id": 1, "pool_name": "rbd", "stripe_width": 0},
    {"pool_id": 2, "pool_name": "ec", "stripe_width": 8192},
]


def _cluster(hosts: int = 1, per_node: int = 3, **code: Any) -> ClusterSection:
    return ClusterSection.model_validate({
        "head": "a", "clients": ["a"], "osds": [f"h{n}" for n in range(hosts)],
        "mons": {"a": {"a": "127.0.0.1"}}, "mgrs": {"a": {"x": None}},
        "osds_per_node": per_node, "osd_file_size": "4G",
        "erasure_profiles": {"ec": {**CODE, **code}},
        "pool_profiles": {"rbd": REPLICAS.model_dump(), "ec": ERASURE.model_dump()},
    })  # fmt: skip


def _said(**changes: Any) -> list[str]:
    found = {
        "profile": PROFILE, "used": USED, "size": SIZE, "overwrites": OVERWRITES, "listed": LISTED,
        **changes,
    }  # fmt: skip
    return [json.dumps(answer) for answer in found.values()]


def test_a_replicated_pool_is_made_as_before() -> None:
    (step,) = daemons.create(_cluster(), "rbd", REPLICAS)
    assert step["mon"]["pool_type"] == "replicated"
    assert step["mon"]["size"] == 2
    assert daemons.ask(REPLICAS, "rbd") == []
    assert daemons.fault(_cluster(), REPLICAS, []) is None


@pytest.mark.parametrize(("hosts", "domain"), [(1, "osd"), (2, "osd"), (3, "host")])
def test_pieces_are_on_hosts_of_their_own_where_there_are_enough(hosts: int, domain: str) -> None:
    profile, make, overwrites = daemons.create(_cluster(hosts), "ec", ERASURE)
    assert profile["mon"]["profile"] == [
        "k=2", "m=1", "plugin=jerasure", f"crush-failure-domain={domain}",
    ]  # fmt: skip
    assert make["mon"]["erasure_code_profile"] == profile["mon"]["name"] == "cbt-crypto-ec"
    assert overwrites["mon"]["var"] == "allow_ec_overwrites"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, None),
        ({"profile": {**PROFILE, "k": "4"}}, "its k is 4 and not 2"),
        ({"profile": {**PROFILE, "plugin": "isa"}}, "its plugin is isa and not jerasure"),
        ({"used": {**USED, "erasure_code_profile": "default"}}, "it uses the profile default"),
        ({"size": {**SIZE, "size": 4}}, "it has 4 pieces of an object"),
        ({"overwrites": {"allow_ec_overwrites": False}}, "it cannot be overwritten"),
    ],
)
def test_the_monitors_words_are_judged(changes: dict[str, Any], fault: Any) -> None:
    assert len(daemons.ask(ERASURE, "ec")) == len(_said())
    assert daemons.fault(_cluster(), ERASURE, _said(**changes)) == fault


def test_a_stripe_unit_is_asked_for_and_judged() -> None:
    cluster = _cluster(erasure_stripe_unit=16384)
    assert "stripe_unit=16384" in daemons.create(cluster, "ec", ERASURE)[0]["mon"]["profile"]
    assert daemons.fault(cluster, ERASURE, _said()) == "its stripe_unit is None and not 16384"
    profile = {**PROFILE, "stripe_unit": "16384"}
    fault = daemons.fault(cluster, ERASURE, _said(profile=profile))
    assert fault == "its stripes have 8192 bytes and not 2 times 16384"
    listed = [*LISTED[:1], {**LISTED[1], "stripe_width": 32768}]
    assert daemons.fault(cluster, ERASURE, _said(profile=profile, listed=listed)) is None
    gone = daemons.fault(cluster, ERASURE, _said(profile=profile, listed=LISTED[:1]))
    assert gone == "its stripes have no known number of bytes and not 2 times 16384"


def test_too_few_osds_and_unknown_profiles_are_said_before_anything_starts() -> None:
    assert [wrong for _, wrong in origin_of(_cluster(per_node=2)).contradictions(True)] == [
        "makes 3 pieces, and the cluster has 2 OSDs; add OSDs"
    ]
    unknown = _cluster().model_copy(update={"erasure_profiles": {}})
    assert [wrong for _, wrong in origin_of(unknown).contradictions(True)] == [
        '"ec" is none of cluster.erasure_profiles; add it there'
    ]
    assert pieces_of(_cluster(), ERASURE) == 3
