"""Which dimension a campaign compares, and which of its values is 100 %."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Union

from cbt_crypto.archive.documents import NEVER_COMPARED, Baseline
from cbt_crypto.archive.folder import CLUSTER_DIMENSIONS
from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.plan.file.cluster import ClusterSection
from cbt_crypto.plan.file.dimensions import listed_values
from cbt_crypto.plan.file.document import KeyPath


def baseline_of(cluster: ClusterSection) -> Union[Baseline, str]:
    """The baseline that the section names, the first configuration for none; else a sentence."""
    named = cluster.baseline
    if named is None:
        return Baseline(value=next(iter(cluster.configurations)))
    if isinstance(named, str):
        return Baseline(value=named)
    if len(named) != 1:
        return "must be a configuration, or one dimension with one value, as {replication: 1}"
    ((dimension, value),) = named.items()
    if not (value is None or isinstance(value, (bool, int, float, str))):
        return f"names no plain value of {dimension}; give the one that is 100 %"
    if dimension in NEVER_COMPARED:
        return f"the values of {dimension} are different loads; compare another dimension"
    return Baseline(dimension=dimension, value=value)


def unmeasured(
    cluster: ClusterSection, baseline: Baseline, scenarios: Mapping[str, tuple[Scenario, ...]]
) -> Iterator[tuple[KeyPath, str]]:
    """Where scenarios do not measure the baseline, and a sentence on each."""
    dimension = baseline.dimension
    listed = listed_values(cluster, dimension) if dimension in CLUSTER_DIMENSIONS else []
    if listed or dimension in ("osds_per_device", "replication"):
        if baseline.value not in listed:
            key = "osd_drives" if dimension == "drive" else dimension
            yield ("cluster", key), f'does not list the baseline, "{baseline.value}"; add it'
        return
    values = {
        name: [getattr(scenario, dimension, None) for scenario in objects]
        for name, objects in scenarios.items()
        if objects and dimension in type(objects[0]).model_fields
    }
    if scenarios and not values and all(scenarios.values()):
        yield ("cluster", "baseline"), f'no benchmark of the file has the dimension "{dimension}"'
    for name, measured in values.items():
        if baseline.value not in measured:
            yield (
                ("benchmarks", name, dimension),
                f'does not measure the baseline, "{baseline.value}"; add it, or there is nothing '
                "to compare with",
            )
