"""Erasure-coded pools: what is asked of the monitors, and how their answers are judged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cbt_crypto.engine.embedded import daemons
from cbt_crypto.plan.file.checks import origin_of
from cbt_crypto.plan.file.cluster import ClusterSection, PoolProfile, pieces_of

pytestmark = pytest.mark.unit

REPLICAS = PoolProfile(replication=2)
ERASURE = PoolProfile(erasure_profile="ec", pg_size=16, pgp_size=16)
CODE = {"erasure_k": 2, "erasure_m": 1}

#: As Ceph 16.2 answers.
CODED = {
    "crush-device-class": "", "crush-failure-domain": "osd", "crush-root": "default",
    "jerasure-per-chunk-alignment": "false", "k": "2", "m": "1", "plugin": "jerasure",
    "technique": "reed_sol_van", "w": "8",
}  # fmt: skip
MADE = {
    "pool": 2, "pool_name": "ec", "size": 3, "pg_num": 16, "pg_placement_num": 16,
    "flags_names": "hashpspool,ec_overwrites", "erasure_code_profile": "cbt-crypto-ec",
    "stripe_width": 8192, "options": {}, "last_change": "20",
}  # fmt: skip


def _cluster(hosts: int = 1, per_node: int = 3, **code: Any) -> ClusterSection:
    return ClusterSection.model_validate({
        "head": "a", "clients": ["a"], "osds": [f"h{n}" for n in range(hosts)],
        "mons": {"a": {"a": "127.0.0.1"}}, "mgrs": {"a": {"x": None}},
        "osds_per_node": per_node, "osd_file_size": "4G",
        "erasure_profiles": {"ec": {**CODE, **code}},
        "pool_profiles": {"rbd": REPLICAS.model_dump(), "ec": ERASURE.model_dump()},
    })  # fmt: skip


def _dump(code: Any = CODED, **changes: Any) -> str:
    return json.dumps({"pools": [{"pool_name": "rbd", "size": 2}, {**MADE, **changes}],
                       "erasure_code_profiles": {"cbt-crypto-ec": code}})  # fmt: skip


def _fault(cluster: ClusterSection, dump: str, pool: PoolProfile = ERASURE) -> Any:
    return daemons.fault(cluster, pool, "ec", dump)


def test_a_replicated_pool_is_made_as_before() -> None:
    (step,) = daemons.create(_cluster(), "rbd", REPLICAS)
    assert step["mon"]["pool_type"] == "replicated"
    assert step["mon"]["size"] == 2
    compressed = REPLICAS.model_copy(update={"compression_mode": "force"})
    *_, option = daemons.create(_cluster(), "rbd", compressed)
    assert option["mon"] == {
        "prefix": "osd pool set", "pool": "rbd", "var": "compression_mode", "val": "force",
    }  # fmt: skip


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
        ({"code": {**CODED, "k": "4"}}, "its k is 4 and not 2"),
        ({"code": {**CODED, "plugin": "isa"}}, "its plugin is isa and not jerasure"),
        ({"erasure_code_profile": "default"}, "its k is None and not 2"),
        ({"size": 4}, "its size is 4 and not 3"),
        ({"pg_num": 32}, "its pg_num is 32 and not 16"),
        ({"options": {"compression_mode": "force"}}, "its compression_mode is force and not None"),
        ({"flags_names": "hashpspool"}, "it cannot be overwritten"),
        (
            {"flags_names": "hashpspool,ec_overwrites,ec_optimizations"},
            "it has EC optimizations",
        ),
        ({"pool_name": "other"}, "the cluster has no such pool"),
    ],
)
def test_the_monitors_words_are_judged(changes: dict[str, Any], fault: Any) -> None:
    assert _fault(_cluster(), _dump(**changes)) == fault


def test_options_of_a_pool_are_set_and_judged() -> None:
    pool = ERASURE.model_copy(update={"compression_mode": "force", "allow_ec_optimizations": True})
    sets = [step["mon"]["var"] for step in daemons.create(_cluster(), "ec", pool)[2:]]
    assert sets == ["allow_ec_overwrites", "allow_ec_optimizations", "compression_mode"]
    fast = {"flags_names": "ec_overwrites,ec_optimizations"}
    assert _fault(_cluster(), _dump(**fast), pool) == "its compression_mode is None and not force"
    made = _dump(options={"compression_mode": "force"}, **fast)
    assert _fault(_cluster(), made, pool) is None
    slow = _dump(options={"compression_mode": "force"})
    assert _fault(_cluster(), slow, pool) == "it has no EC optimizations"


def test_a_stripe_unit_is_asked_for_and_judged() -> None:
    cluster = _cluster(erasure_stripe_unit=16384)
    assert "stripe_unit=16384" in daemons.create(cluster, "ec", ERASURE)[0]["mon"]["profile"]
    assert _fault(cluster, _dump()) == "its stripe_unit is None and not 16384"
    code = {**CODED, "stripe_unit": "16384"}
    assert _fault(cluster, _dump(code)) == "its stripes have 8192 bytes and not 2 times 16384"
    assert _fault(cluster, _dump(code, stripe_width=32768)) is None


def test_too_few_osds_and_unknown_profiles_are_said_before_anything_starts() -> None:
    assert [wrong for _, wrong in origin_of(_cluster(per_node=2)).contradictions(True)] == [
        "makes 3 pieces, and the cluster has 2 OSDs; add OSDs"
    ]
    unknown = _cluster().model_copy(update={"erasure_profiles": {}})
    assert [wrong for _, wrong in origin_of(unknown).contradictions(True)] == [
        '"ec" is none of cluster.erasure_profiles; add it there'
    ]
    assert pieces_of(_cluster(), ERASURE) == 3
