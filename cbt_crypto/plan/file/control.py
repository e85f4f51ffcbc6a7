"""The control: every campaign measures its baseline a second time, as a test of itself.

It is treated like any configuration. What it is shown to differ by from the baseline says what
the other differences of the same campaign are worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cbt_crypto.archive.documents import Baseline
from cbt_crypto.plan.file.cluster import ClusterSection
from cbt_crypto.plan.file.document import KeyPath

#: Its name, in the file's list of configurations and in every table.
CONTROL = "control"


def wants_control(cluster: ClusterSection, baseline: Baseline) -> bool:
    """Whether a control is added: where several configurations are compared with one of them."""
    several = len(cluster.configurations) > 1 and baseline.dimension == "configuration"
    return cluster.control and several


def name_taken(cluster: ClusterSection, baseline: Baseline) -> Iterator[tuple[KeyPath, str]]:
    """A sentence where the file has a configuration of that name."""
    if wants_control(cluster, baseline) and CONTROL in cluster.configurations:
        yield (
            ("cluster", "configurations", CONTROL),
            "is the name under which the baseline is measured a second time; rename it, or say "
            "control: false",
        )


def behind_baseline(configurations: Mapping[str, Any], baseline: Baseline) -> dict[str, Any]:
    """Configurations with the control, which is what the baseline is, behind the baseline."""
    with_control: dict[str, Any] = {}
    for name, value in configurations.items():
        with_control[name] = value
        if name == baseline.value:
            with_control[CONTROL] = value
    return with_control


def in_section(listed: Any, baseline: Baseline) -> Any:
    """The `configuration` that a scenario lists, with the control where it compares."""
    if not isinstance(listed, list) or baseline.value not in listed or len(listed) < 2:
        return listed
    position = listed.index(baseline.value) + 1
    return [*listed[:position], CONTROL, *listed[position:]]
