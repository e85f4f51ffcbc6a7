"""One line for people about a cell, the one that --plan prints and --only matches."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

from cbt_crypto import units
from cbt_crypto.archive.documents import PlannedCell

#: Each of these lists takes a new cluster for each of its values.
CLUSTER_DIMENSIONS = ("drive", "osds_per_device", "replication")


def depth_words(options: Mapping[str, Any]) -> str:
    """`iodepth 32`, or the total where that counts; the rate behind it where there is one."""
    total = options.get("total_iodepth")
    depth = f"iodepth {options['iodepth']}" if total is None else f"total_iodepth {total}"
    rate, data = options.get("rate", "max"), options.get("data_pool_profile")
    depth = depth if data is None else f"{depth} data_pool {data}"
    return depth if rate == "max" else f"{depth} rate {rate}"


def label_of(cell: PlannedCell) -> str:
    """The label of a cell in an archive's plan."""
    return label(cell.scenario, cell.configuration, cell.parameters, cell.iteration)


def label(scenario: str, configuration: str, options: Mapping[str, Any], iteration: int) -> str:
    """`rbd_single_client / LUKS / randread 4K iodepth 32`, and from the second on the iteration."""
    words = [str(options.get("mode", ""))]
    words += [units.short_size(options["op_size"])] if "op_size" in options else []
    words += [depth_words(options)] if "iodepth" in options else []
    words += [f"{key} {options[key]}" for key in CLUSTER_DIMENSIONS if key in options]
    words += [f"iteration {iteration}"] if iteration else []
    return f"{scenario} / {configuration} / {' '.join(words)}"


def matches(text: str, pattern: str) -> bool:
    """Whether a pattern of `--only` is a part of a label, or as a glob all of it; in any case."""
    text, pattern = text.lower(), pattern.lower()
    return pattern in text or fnmatch.fnmatchcase(text, pattern)
