"""Write docs/file.md: python tests/programs/file_reference.py > docs/file.md"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Optional

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cbt_crypto.benchmarks import SCENARIOS
from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.plan.file.cluster import (
    CephSettings,
    ClusterSection,
    CollectlProfile,
    ErasureProfile,
    Neighbours,
    PerfProfile,
    PoolProfile,
    SamplerProfile,
    StacksProfile,
)
from cbt_crypto.plan.file.field_types import meaning_of
from cbt_crypto.results.until import MeasureUntil

_BEGINNING = """\
# The campaign file

One YAML file describes a campaign: the cluster, its configurations, the workloads, and what watches
the nodes. Where CBT has a key, it is CBT's. Any other key is an error, whose message has the line
and the nearest key.

```yaml
cluster:
  head: node0
  clients: [node0, node1]
  osds: [node2, node3, node4]
  mons: {node2: {a: 10.0.0.2}, node3: {b: 10.0.0.3}, node4: {c: 10.0.0.4}}
  mgrs: {node2: {x: ~}}
  osds_per_node: 6
  osd_devices: /dev/disk/by-partlabel/osd-device-{n}-data   # n: 0 to 5 on each host
  pool_profiles: {rbd: {pg_size: 512, pgp_size: 512, replication: 3}}   # 100 PGs an OSD
  baseline: Unencrypted        # 100 %; measured a second time as `control`
  iterations: 4                # rounds: a verdict takes 4
  rebuild: needed              # if OSDs change
  configurations:
    Unencrypted: {}
    LUKS: {luks: {}}
    LUKS, 4k sectors: {luks: {sector_size: 4096}}
benchmarks:
  rbd_multi_client:
    time: 300
    ramp: 30
    workloads: {op_size: [4194304, 4096], mode: [randread, randwrite]}
  rbd_single_client_sync:
    workloads: {mode: [randread, randwrite]}
```

`init` writes such a file for hosts that answer; until then, name yours in this one: `plan` and
`check --no-hosts` ask none.

`cbt-crypto check FILE` checks a file, `plan FILE` prints what would run, `schema` a JSON Schema for
editors. This page is of the same models, by `python tests/programs/file_reference.py`.

The meaning of a key names its unit. Nothing is converted: neither `true` nor `"3"` counts as 3.
"""

_CONFIGURATIONS = """\
### cluster.configurations

Each configuration is a name, which the tables show, and a mapping of overlays to their options;
`{}` is the cluster without overlays. Overlays are applied in the order of the file.
[overlays.md](overlays.md) says what each of them does and how it is proved.
"""

_BENCHMARKS = """\
## benchmarks

A key is a scenario, and its value is a mapping of options. **A list is a dimension**: each
combination of the listed values is one cell, and the last key varies fastest. `workloads` is a
mapping of more options, which vary faster than those outside it. An option in it replaces the same
option above it.

If only some combinations of a scenario make sense, give each a name in `workloads`, as in
`workloads: {small: {op_size: 4096, mode: randread}, large: {op_size: 4194304, mode: write}}`, or
give a list of such mappings, each with its own dimensions.

Several `iterations` are rounds: each measures every configuration once, in random order. Within a
round, and with `order: sequential`, the cells of one configuration come one after another, in the
order of the file, because a change of configuration costs time. With `order: interleaved`
configurations take turns instead. With `layout: side_by_side` they take turns too, each on OSDs of
its own ([method.md](method.md)). Scenarios share volumes of the same size, which are filled once
for each cluster.
"""

_UNTIL = """\
### time, as a mapping

Each cell is measured in blocks until its percent of the baseline is known with the precision asked
for; warm-up is cut from each block. In turns on one cluster, blocks are added. With
`layout: side_by_side`, and in rounds with `iterations`, whole deployments are added, at most
`iterations` of them. Side by side takes at least four; rounds take five, or six if one deployment
serves both sides. `max` ends rounds too; side by side it is the limit if `iterations` is not given.
[method.md](method.md) says how, and what is assumed.
"""

_MONITORING = """\
## monitoring_profiles

collectl always runs. For hosts that lack it, such as RHEL's, `sampler:` with no options runs our
own sampler instead: it needs only Python, and records the same counters. `perf:` with no options
runs perf with its defaults; `stacks:` gives the report
[flame graphs](figures.md#flame-graphs) of what OSDs and dm-crypt run.
"""


def reference() -> str:
    """The text of docs/file.md."""
    return "\n".join(
        (
            _BEGINNING,
            "## cluster\n",
            *_table(ClusterSection),
            "### cluster.pool_profiles.NAME\n",
            *_table(PoolProfile),
            "### cluster.erasure_profiles.NAME\n",
            *_table(ErasureProfile),
            "### cluster.neighbours\n",
            *_table(Neighbours),
            "### cluster.settings\n",
            *_table(CephSettings),
            _CONFIGURATIONS,
            *_overlays(),
            _BENCHMARKS,
            *_scenarios(),
            _MONITORING,
            "### monitoring_profiles.collectl\n",
            *_table(CollectlProfile),
            "### monitoring_profiles.sampler\n",
            *_table(SamplerProfile),
            "### monitoring_profiles.perf\n",
            *_table(PerfProfile),
            "### monitoring_profiles.stacks\n",
            *_table(StacksProfile),
        )
    ).rstrip("\n")


def _overlays() -> Iterator[str]:
    for name, overlay in OVERLAYS.items():
        yield f"#### {name}\n\n{_summary(overlay)}\n"
        yield from _table(overlay)


def _scenarios() -> Iterator[str]:
    """The options that all scenarios share, then those of each that nobody above it has."""
    rows = {name: dict(_rows(scenario)) for name, scenario in SCENARIOS.items()}
    first = next(iter(SCENARIOS))
    common = {
        key: row
        for key, row in rows[first].items()
        if all(rows_of.get(key) == row for rows_of in rows.values())
    }
    yield "### Options of all scenarios\n"
    yield from _lines(common.values())
    yield _UNTIL
    yield from _table(MeasureUntil)
    for name, scenario in SCENARIOS.items():
        yield f"### {name}\n\n{_summary(scenario)}\n"
        shared = common
        lacking = rows[first].keys() - rows[name].keys()
        if name != first and len(lacking) <= 1:
            but = "".join(f" but `{key}`" for key in lacking)
            yield f"It has all options of [{first}](#{first}){but}, and these instead or besides:\n"
            shared = rows[first]
        yield from _lines(row for key, row in rows[name].items() if shared.get(key) != row)


def _summary(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").partition("\n")[0]


def _table(model: type[BaseModel]) -> Iterator[str]:
    yield from _lines(row for _, row in _rows(model))


def _lines(rows: Iterable[str]) -> Iterator[str]:
    rows = list(rows)
    if not rows:
        yield "It has no options.\n"
        return
    yield "| key | value | default | meaning |\n| --- | --- | --- | --- |"
    yield from rows
    yield ""


def _rows(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    schema = model.model_json_schema(by_alias=False)
    for key, info in model.model_fields.items():
        name = f"`{key}`" + (f" or `{info.alias}`" if info.alias else "")
        cells = (
            name,
            _kind(schema["properties"][key], schema),
            _default(info, model),
            info.description or "",
        )
        yield key, f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        yield "", f"| any other | {_kind(others, schema)} | | see [overlays.md](overlays.md) |"


def _default(info: FieldInfo, model: type[BaseModel]) -> str:
    if info.is_required():
        return "required" if not issubclass(model, Scenario) else "all"
    value = info.get_default(call_default_factory=True)
    if value is None:
        return ""
    if isinstance(value, BaseModel):
        return "see below"
    return f"`{json.dumps(_plain(value), ensure_ascii=False)}`"


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return value


def _kind(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    choices = [choice for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
    if choices:
        return "; or ".join(_kind(choice, root) for choice in choices)
    if "$ref" in schema:
        return "mapping"
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return ", ".join(f"`{json.dumps(value).strip(chr(34))}`" for value in values)
    kinds = {"integer": _number, "number": _number, "array": _list, "object": _mapping}
    if schema.get("type") in kinds:
        return kinds[schema["type"]](schema, root)
    if "pattern" in schema:
        return meaning_of(schema["pattern"], "text")
    return {"boolean": "`true`, `false`", "string": "text"}.get(schema.get("type", ""), "anything")


def _number(schema: Mapping[str, Any], _: Mapping[str, Any]) -> str:
    least: Optional[int] = schema.get("minimum")
    most: Optional[int] = schema.get("maximum")
    kind = "whole number" if schema["type"] == "integer" else "number"
    if least is not None and most is not None:
        return f"{kind}, {least} to {most}"
    return f"{kind}, at least {least}" if least is not None else kind


def _list(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    return f"list of: {_kind(schema.get('items', {}), root)}"


def _mapping(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    inner = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
    kind = _kind(inner[0], root) if isinstance(inner[0], dict) else "anything"
    return f"mapping of names to: {kind}"


if __name__ == "__main__":
    print(reference())
