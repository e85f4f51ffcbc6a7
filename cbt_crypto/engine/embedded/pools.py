"""The monitors' commands that make a pool, replicated or erasure-coded, and what it then is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from cbt_crypto.engine.embedded.admin_session import Step
from cbt_crypto.plan.file.cluster import ClusterSection, ErasureProfile, PoolProfile
from cbt_crypto.plan.layout import pieces_of


def create(
    cluster: ClusterSection, name: str, pool: PoolProfile, device_class: Optional[str] = None
) -> list[Step]:
    """Make a pool, on OSDs of one class if there is one to be.

    An erasure-coded pool may be overwritten, as RBD does.
    """
    sizes = {"pool": name, "pg_num": pool.pg_size, "pgp_num": pool.pgp_size}
    if pool.erasure_profile is None:
        replicated = {**sizes, "pool_type": "replicated", "size": pool.replication}
        if device_class is None:
            return [_mon("osd pool create", **replicated)]
        rule = {"root": "default", "type": failure_domain(cluster), "class": device_class}
        return [
            _mon("osd crush rule create-replicated", name=device_class, **rule),
            _mon("osd pool create", **replicated, rule=device_class),
        ]
    code = cluster.erasure_profiles[pool.erasure_profile]
    words = [f"{key}={value}" for key, value in _wanted(cluster, code, device_class).items()]
    profile = _profile(pool, device_class)
    return [
        _mon("osd erasure-code-profile set", name=profile, profile=words, force=True,
             yes_i_really_mean_it=True),
        _mon("osd pool create", **sizes, pool_type="erasure", erasure_code_profile=profile),
        _mon("osd pool set", pool=name, var="allow_ec_overwrites", val="true"),
    ]  # fmt: skip


def alike(name: str, like: str, twins: Mapping[int, int]) -> list[Step]:
    """Place a new pool as another one is, on the `twins` of its OSDs.

    CRUSH would draw for each by itself, and the luck of the draw would be taken for a difference.
    """
    return [
        _mon("osd set-require-min-compat-client", version="luminous"),
        {"alike": name, "like": like, "twins": {str(osd): twin for osd, twin in twins.items()}},
    ]


def ask(pool: PoolProfile, name: str, device_class: Optional[str] = None) -> list[Step]:
    """What the monitors say of a pool that was made: nothing is asked of a replicated one."""
    if pool.erasure_profile is None:
        return []
    return [
        _mon("osd erasure-code-profile get", name=_profile(pool, device_class), format="json"),
        _mon("osd pool get", pool=name, var="erasure_code_profile", format="json"),
        _mon("osd pool get", pool=name, var="size", format="json"),
        _mon("osd pool get", pool=name, var="allow_ec_overwrites", format="json"),
        _mon("osd pool ls", detail="detail", format="json"),
    ]


def fault(
    cluster: ClusterSection, pool: PoolProfile, answers: Sequence[str],
    device_class: Optional[str] = None,
) -> Optional[str]:  # fmt: skip
    """What contradicts that the pool is coded as the file wants it, by the answers to `ask`."""
    if pool.erasure_profile is None:
        return None
    code = cluster.erasure_profiles[pool.erasure_profile]
    profile, used, size, overwrites, listed = (json.loads(answer) for answer in answers)
    for key, value in _wanted(cluster, code, device_class).items():
        if str(profile.get(key)) != str(value):
            return f"its {key} is {profile.get(key)} and not {value}"
    if used.get("erasure_code_profile") != _profile(pool, device_class):
        return f"it uses the profile {used.get('erasure_code_profile')}"
    if size.get("size") != code.erasure_k + code.erasure_m:
        return f"it has {size.get('size')} pieces of an object"
    if not overwrites.get("allow_ec_overwrites"):
        return "it cannot be overwritten"
    return _stripe_fault(code, used.get("pool"), listed)


def _stripe_fault(code: ErasureProfile, name: Any, listed: Sequence[Any]) -> Optional[str]:
    """The profile only repeats what was asked for; the pool has what came of it."""
    unit = code.erasure_stripe_unit
    widths = [pool.get("stripe_width") for pool in listed if pool.get("pool_name") == name]
    if not unit or widths == [unit * code.erasure_k]:
        return None
    found = ", ".join(map(str, widths)) or "no known number of"
    return f"its stripes have {found} bytes and not {code.erasure_k} times {unit}"


def failure_domain(cluster: ClusterSection) -> str:
    """Hosts where there are enough for the replicas of every pool, else OSDs."""
    replicas = max(pieces_of(cluster, pool) for pool in cluster.pool_profiles.values())
    return "host" if len(set(cluster.osds)) >= replicas else "osd"


def _profile(pool: PoolProfile, device_class: Optional[str]) -> str:
    name = f"cbt-crypto-{pool.erasure_profile}"
    return f"{name}-{device_class}" if device_class else name


def _wanted(
    cluster: ClusterSection, code: ErasureProfile, device_class: Optional[str]
) -> dict[str, Any]:
    """Pieces on hosts of their own where there are enough hosts."""
    is_enough = len(set(cluster.osds)) >= code.erasure_k + code.erasure_m
    unit = code.erasure_stripe_unit
    return {
        "k": code.erasure_k,
        "m": code.erasure_m,
        "plugin": code.erasure_plugin,
        "crush-failure-domain": "host" if is_enough else "osd",
        **({"stripe_unit": unit} if unit else {}),
        **({"crush-device-class": device_class} if device_class else {}),
    }


def _mon(prefix: str, **arguments: Any) -> Step:
    return {"mon": {"prefix": prefix, **arguments}}
