"""The `benchmarks` section: lists are dimensions, and each combination is one scenario object."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Optional, Union

from pydantic import Field, create_model

from cbt_crypto.benchmarks.base import Scenario

#: Keys of one combination, and for each the path of its value below the section.
Combination = dict[str, Any]


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def flatten(section: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Key -> values of one scenario's section; `workloads` is merged in behind the rest.

    The order of keys is the order of the loops: the last varies fastest. A workload's key
    overrides the same key above it, as in CBT.
    """
    values = {key: _as_list(value) for key, value in section.items() if key != "workloads"}
    for key, value in (section.get("workloads") or {}).items():
        values.pop(key, None)
        values[key] = _as_list(value)
    return values


def named_workloads(section: Any) -> Optional[Mapping[str, Any]]:
    """Upstream's workloads, each with a name and options of its own; None where there are none."""
    workloads = section.get("workloads") if isinstance(section, dict) else None
    if not isinstance(workloads, dict) or not workloads:
        return None
    is_named = any(isinstance(options, dict) for options in workloads.values())
    return {str(name): options for name, options in workloads.items()} if is_named else None


def combinations(section: Mapping[str, Any]) -> Iterator[Combination]:
    """Every combination of the section's dimensions, the last key varying fastest."""
    values = flatten(section)
    for chosen in itertools.product(*values.values()):
        yield dict(zip(values, chosen))


def section_model(scenario: type[Scenario]) -> Any:
    """The model of a scenario's section in the file: each option one value or a list of them.

    Used for the JSON Schema; validation goes through the scenario itself, one combination at a
    time, so that a sentence can name the element that is wrong.
    """
    dimensions: dict[str, Any] = {}
    for key, info in scenario.model_fields.items():
        # Annotated takes a tuple for its arguments: the type, and what pydantic checks besides.
        value: Any = (
            Annotated[(info.annotation, *info.metadata)] if info.metadata else (info.annotation)
        )
        default = None if info.is_required() else info.default
        dimensions[key] = (
            Union[value, list[value]],
            Field(default, alias=info.alias, description=info.description),
        )
    workloads = create_model(
        f"{scenario.__name__}Workloads", __config__=scenario.model_config, **dimensions
    )
    return create_model(
        f"{scenario.__name__}Section",
        __config__=scenario.model_config,
        __doc__=scenario.__doc__,
        workloads=(workloads, Field(None, description="dimensions measured on the same volumes")),
        **dimensions,
    )
