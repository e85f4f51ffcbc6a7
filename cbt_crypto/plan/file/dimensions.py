"""Keys of the `cluster` section that may be lists, and so are dimensions of the campaign."""

from __future__ import annotations

import itertools
from typing import Any, Union

from cbt_crypto.archive.folder import CLUSTER_DIMENSIONS
from cbt_crypto.plan.file.cluster import ClusterSection

#: A value for each key of the section that is a list: (("replication", 3),).
Variant = tuple[tuple[str, Union[int, str]], ...]


def listed_values(cluster: ClusterSection, dimension: str) -> list[Any]:
    """The values of a dimension; none where the section has one value only."""
    value = cluster.osd_drives if dimension == "drive" else getattr(cluster, dimension)
    return list(value) if isinstance(value, list) else []


def variants(cluster: ClusterSection) -> tuple[Variant, ...]:
    """Every combination of the lists, the last varying fastest; one empty variant without lists."""
    listed = {key: values for key in CLUSTER_DIMENSIONS if (values := listed_values(cluster, key))}
    return tuple(tuple(zip(listed, values)) for values in itertools.product(*listed.values()))


def at(cluster: ClusterSection, variant: Variant = ()) -> ClusterSection:
    """The section with one value for each key; the first of its list where `variant` has none."""
    chosen = dict(variant)
    values: dict[str, Any] = {}
    if cluster.osd_drives:
        drive = cluster.drives[str(chosen.get("drive", cluster.osd_drives[0]))]
        values.update(osds=[drive.host], osds_per_node=len(drive.devices))
        values["osd_drives"] = []  # chosen: `at` of the result changes nothing
        values["osd_devices"] = {drive.host: list(drive.devices)}
    for key in ("osds_per_device", "replication"):
        value = getattr(cluster, key)
        values[key] = chosen.get(key, value[0] if isinstance(value, list) else value)
    replication = values["replication"]
    if replication is not None:
        values["pool_profiles"] = {
            name: profile.model_copy(update={"replication": replication})
            for name, profile in cluster.pool_profiles.items()
        }
    return cluster.model_copy(update=values)


def words(variant: Variant) -> str:
    """For labels: `osds_per_device 4 replication 1`."""
    return " ".join(f"{key} {value}" for key, value in variant)
