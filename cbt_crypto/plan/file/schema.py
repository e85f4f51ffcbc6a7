"""The whole campaign file as one model, and its JSON Schema for editors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Optional, Union

from pydantic import Field, create_model

from cbt_crypto import __version__
from cbt_crypto.archive.documents import Scalar
from cbt_crypto.benchmarks import SCENARIOS
from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.cluster_overlays.base import Overlay
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.plan.file.cluster import ClusterSection, MonitoringProfiles
from cbt_crypto.plan.file.field_types import ConfigurationName, FileSection
from cbt_crypto.plan.side_by_side import Group

#: Keys of one combination, and for each the path of its value below the section.
Combination = dict[str, Any]


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def flatten(section: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Key -> values of a scenario's section, in loop order; a workload's key overrides."""
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
    """The JSON Schema's model of a scenario: each option one value or a list of them."""
    dimensions: dict[str, Any] = {}
    for key, info in scenario.model_fields.items():
        # Annotated takes a tuple for its arguments: the type, and what pydantic checks besides.
        value: Any = info.annotation
        value = Annotated[(value, *info.metadata)] if info.metadata else value
        default = None if info.is_required() else info.default
        field = Field(default, alias=info.alias, description=info.description)
        dimensions[key] = (Union[value, list[value]], field)
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


@dataclass(frozen=True)
class Campaign:
    """A validated file: overlays by configuration; scenario objects, one a combination."""

    title: str
    cluster: ClusterSection
    baseline: Scalar
    configurations: dict[str, tuple[Overlay, ...]]
    scenarios: dict[str, tuple[Scenario, ...]]
    monitoring: MonitoringProfiles
    document: dict[str, Any]
    #: The dimension that is compared; `baseline` is one of its values.
    compared: str = "configuration"
    #: Configurations on the same OSDs, with `layout: side_by_side`; none in any other layout.
    groups: tuple[Group, ...] = ()
    #: What of a file of CBT's has no effect here, to be shown.
    notes: tuple[str, ...] = ()

    @property
    def first_configuration(self) -> str:
        """The one to begin with: the baseline, where configurations are compared."""
        if self.compared == "configuration":
            return str(self.baseline)
        return self.names_of_configurations[0]

    @property
    def names_of_configurations(self) -> tuple[str, ...]:
        """In the file's order."""
        return tuple(self.configurations)

    @cached_property
    def stacks(self) -> Mapping[str, Stack]:
        """Configuration -> its overlays, and how those that it lacks state their absence."""
        return {name: Stack(overlays) for name, overlays in self.configurations.items()}


def file_model() -> Any:
    """The pydantic model of a whole file, for the JSON Schema and the documentation."""
    fields: dict[str, Any] = {
        name: (Optional[overlay], Field(None, description=(overlay.__doc__ or "").split("\n")[0]))
        for name, overlay in OVERLAYS.items()
    }
    overlays: Any = create_model("Overlays", __config__=FileSection.model_config, **fields)
    cluster = create_model(
        "Cluster",
        __base__=ClusterSection,
        __doc__=ClusterSection.__doc__,
        configurations=(
            dict[ConfigurationName, overlays],
            Field(
                default_factory=dict,
                min_length=1,
                description=ClusterSection.model_fields["configurations"].description,
            ),
        ),
    )
    scenarios: dict[str, Any] = {}
    for name, scenario in SCENARIOS.items():
        section: Any = section_model(scenario)
        scenarios[name] = (Union[section, list[section], None], None)
    benchmarks = create_model("Benchmarks", __config__=FileSection.model_config, **scenarios)
    return create_model(
        "CampaignFile",
        __config__=FileSection.model_config,
        cluster=(cluster, Field(description="hosts, daemons, devices, configurations")),
        benchmarks=(benchmarks, Field(description="scenarios, in the order they are to run")),
        monitoring_profiles=(
            MonitoringProfiles,
            Field(default_factory=MonitoringProfiles, description="what watches the nodes"),
        ),
    )


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the campaign file."""
    model = file_model()
    schema: dict[str, Any] = model.model_json_schema()
    by_own_name = model.model_json_schema(by_alias=False)["$defs"]
    for name, definition in schema["$defs"].items():
        own_names = by_own_name[name].get("properties", {})
        definition.get("properties", {}).update(own_names)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["$id"] = f"urn:cbt-crypto:campaign:{__version__}"
    schema["title"] = "cbt-crypto campaign"
    return schema
