"""The whole campaign file as one model, and its JSON Schema for editors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Union

from pydantic import Field, create_model

from cbt_crypto.archive.documents import Scalar
from cbt_crypto.benchmarks import SCENARIOS
from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.cluster_overlays.base import Overlay
from cbt_crypto.plan.file.cluster import ClusterSection
from cbt_crypto.plan.file.combinations import section_model
from cbt_crypto.plan.file.field_types import ConfigurationName, FileSection
from cbt_crypto.plan.file.monitoring import MonitoringProfiles
from cbt_crypto.plan.side_by_side.groups import Group


@dataclass(frozen=True)
class Campaign:
    """A validated file: the cluster, the configurations' overlays, the scenario objects.

    `configurations`: name -> overlays in the file's order, one object each.
    `scenarios`: section name -> one object for each combination of its dimensions, in order.
    `document` is the file as it was read.
    """

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


def _overlays_model() -> Any:
    fields: dict[str, Any] = {
        name: (Optional[overlay], Field(None, description=(overlay.__doc__ or "").split("\n")[0]))
        for name, overlay in OVERLAYS.items()
    }
    return create_model("Overlays", __config__=FileSection.model_config, **fields)


def _one_or_more(section: Any) -> Any:
    return Union[section, list[section], None]


def file_model() -> Any:
    """The pydantic model of a whole file, for the JSON Schema and the documentation."""
    overlays: Any = _overlays_model()
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
    scenarios: dict[str, Any] = {
        name: (_one_or_more(section_model(scenario)), None) for name, scenario in SCENARIOS.items()
    }
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
    schema: dict[str, Any] = file_model().model_json_schema()
    _add_own_names(schema, file_model().model_json_schema(by_alias=False))
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "cbt-crypto campaign"
    return schema


def _add_own_names(schema: dict[str, Any], by_name: dict[str, Any]) -> None:
    """A key that CBT has another name for is taken by both."""
    for name, definition in schema["$defs"].items():
        our_names = by_name["$defs"][name].get("properties", {})
        definition.get("properties", {}).update(our_names)
