"""From a YAML file to a validated Campaign, or to one sentence for each thing that is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Optional, TypeVar, Union

from pydantic import BaseModel, ValidationError

from cbt_crypto.archive import documents
from cbt_crypto.archive.documents import Baseline, Matrix
from cbt_crypto.archive.folder import CLUSTER_DIMENSIONS
from cbt_crypto.benchmarks import SCENARIOS
from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.benchmarks.upstream import OfUpstream
from cbt_crypto.cluster_overlays import OVERLAYS, ceph_options
from cbt_crypto.cluster_overlays.base import Overlay
from cbt_crypto.cluster_overlays.pools import Pools
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.secret import keep_secrets
from cbt_crypto.plan import side_by_side
from cbt_crypto.plan.file import checks, of_cbt
from cbt_crypto.plan.file.cluster import (
    ClusterSection,
    MonitoringProfiles,
    at,
    behind_baseline,
    controlled,
    in_section,
    listed_values,
    name_taken,
    pool_state,
    variants,
    wants_control,
)
from cbt_crypto.plan.file.document import KeyPath, YamlDocument, printable, read
from cbt_crypto.plan.file.field_types import keys_of
from cbt_crypto.plan.file.schema import Campaign, combinations, flatten, named_workloads
from cbt_crypto.plan.side_by_side import divided


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
    if dimension in documents.NEVER_COMPARED:
        return f"the values of {dimension} are different workloads; compare another dimension"
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
            sentence = f'does not measure the baseline, "{baseline.value}"; add it, or there is '
            yield ("benchmarks", name, dimension), f"{sentence}nothing to compare with"


ModelT = TypeVar("ModelT", bound=BaseModel)

_SAMPLER = "upstream's {} is watched by collectl alone; remove `sampler` or this benchmark"
REQUIRED_SECTIONS = ("cluster", "benchmarks")


@dataclass
class CampaignFile:
    """Collects what is wrong in one document, so that all of it is said at once."""

    document: YamlDocument
    problems: list[str] = field(default_factory=list)
    #: Of all parts of all benchmarks that were read so far.
    cells: int = 0

    def problem(self, path: KeyPath, wrong: str) -> None:
        """Note what is wrong at `path`, once; what named workloads share stands beside them."""
        if "workloads" in path and path not in self.document.lines:
            place = path.index("workloads")
            shared = (*path[:place], *path[place + 2 :])
            path = shared if shared in self.document.lines else path
        text = f"{self.document.where(path)}: {printable(wrong)}"
        if text not in self.problems:
            self.problems.append(text)

    def note(self, wrong: Iterable[checks.Contradiction]) -> None:
        """Note all that is wrong, each thing once."""
        for path, sentence in wrong:
            self.problem(path, sentence)

    def mapping(self, path: KeyPath, value: Any) -> dict[str, Any]:
        """`value` when it is a mapping with text keys, else a problem and an empty one."""
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return value
        if value is not None:
            self.problem(path, f"must be a mapping of names to values, not {checks.kind_of(value)}")
        return {}

    def known(self, path: KeyPath, name: str, kind: str, names: Iterable[str]) -> bool:
        """Whether `name` is among `names`; a problem with the nearest one when it is not."""
        names = list(names)
        if name not in names:
            self.problem(path, f'unknown {kind} "{name}"; {checks.nearest(name, names)}')
            return False
        return True

    def model(self, model: type[ModelT], path: KeyPath, data: Any) -> Optional[ModelT]:
        """`data` as a `model`, or None with its problems noted."""
        try:
            return model.model_validate(data)
        except ValidationError as error:
            self.note((path + place, wrong) for place, wrong in checks.sentences(model, error))
            return None


def read_campaign(path: Path) -> Campaign:
    """Read and validate a campaign file.

    Raises UsageError, a line for each mistake: file, line, key, and the nearest valid name.
    """
    document = read(path)
    keep_secrets(document.data)
    return _loaded(CampaignFile(document))


def validate_campaign(path: Path, data: Any) -> Campaign:
    """A campaign from what was read of its file earlier; `path` is what errors name."""
    return _loaded(CampaignFile(YamlDocument(path, data)))


def _loaded(file: CampaignFile) -> Campaign:
    campaign = _campaign(file)
    if campaign is None or file.problems:
        raise UsageError("\n".join(file.problems))
    return campaign


def _campaign(file: CampaignFile) -> Optional[Campaign]:
    data = file.document.data
    if not isinstance(data, dict):
        file.problem((), "must be a mapping with the sections cluster and benchmarks")
        return None
    notes = _translate(file, data)
    if notes is None:
        return None
    data = file.document.data
    for key in data:
        file.known((key,), str(key), "section", checks.SECTIONS)
    for section in REQUIRED_SECTIONS:
        if section not in data:
            file.problem((section,), "this section is missing; docs/file.md shows it")
    cluster = file.model(ClusterSection, ("cluster",), data.get("cluster") or {})
    watchers = data.get("monitoring_profiles") or {}
    monitoring = file.model(MonitoringProfiles, ("monitoring_profiles",), watchers)
    if cluster is None or monitoring is None or file.problems:
        return None
    cluster = _crossed(file, cluster)
    configurations = _configurations(file, cluster)
    _check_cluster(file, cluster, _needs_cluster(data))
    baseline = _baseline(file, cluster)
    if baseline is None:
        return None
    cluster, configurations = _controlled(file, cluster, configurations, baseline)
    cluster, together = _laid_out(file, cluster, configurations)
    scenarios = _scenarios(file, cluster, baseline)
    file.note(unmeasured(cluster, baseline, scenarios))
    file.note(checks.of_recovery(cluster, scenarios))
    file.note(checks.of_client_libraries(configurations, scenarios))
    file.note(checks.of_pools(cluster, configurations, scenarios))
    file.note(checks.of_clients(cluster, scenarios))
    sampled = scenarios if monitoring.sampler else ()
    of_upstream = (name for name in sampled if issubclass(SCENARIOS[name], OfUpstream))
    file.note((("monitoring_profiles", "sampler"), _SAMPLER.format(name)) for name in of_upstream)
    return Campaign(
        title=printable(file.document.path.stem),
        cluster=cluster,
        baseline=baseline.value,
        compared=baseline.dimension,
        configurations=configurations,
        scenarios=scenarios,
        monitoring=monitoring,
        document=file.document.data,
        groups=together,
        notes=notes,
    )


def _crossed(file: CampaignFile, cluster: ClusterSection) -> ClusterSection:
    """The section with the configurations that its matrix makes; the file's content has them too.

    Raises UsageError where the matrix makes none: what else is wrong would follow from that.
    """
    if not cluster.matrix:
        return cluster
    path: KeyPath = ("cluster", "matrix")
    for factor, levels in cluster.matrix.items():
        for level, overlays in levels.items():
            _overlays(file, (*path, factor, level), overlays)
    made, wrong = _of_matrix(cluster.matrix)
    data = file.document.data
    if data["cluster"].get("configurations", made) != made:
        sentence = "are made of cluster.matrix; remove one of them"
        file.problem(("cluster", "configurations"), sentence)
    file.note(((*path, *inner), sentence) for inner, sentence in wrong)
    if file.problems:
        raise UsageError("\n".join(file.problems))
    data = {**data, "cluster": {**data["cluster"], "configurations": made}}
    file.document = replace(file.document, data=data)
    return cluster.model_copy(update={"configurations": made})


def _of_matrix(matrix: Matrix) -> tuple[dict[str, dict[str, Any]], list[tuple[KeyPath, str]]]:
    """The configurations of all combinations; and a sentence for each key that allows none."""
    made: dict[str, dict[str, Any]] = {}
    wrong: list[tuple[KeyPath, str]] = []
    if not documents.can_be_crossed(matrix):
        sentence = "takes two factors or more, each with two levels or more, and makes at most"
        return {}, [((), f"{sentence} {documents.MOST_CROSSED} configurations")]
    for name, levels in documents.crossed(matrix).items():
        made[name] = {}
        for factor, level in zip(matrix, levels):
            twice = _lay_over(made[name], matrix[factor][level])
            if twice:
                wrong.append(((factor, level), f"sets {twice}, as another factor does; keep one"))
    if len(made) < math.prod(map(len, matrix.values())):
        wrong.append(((), "has names of levels that make one configuration twice; rename one"))
    return made, wrong


def _lay_over(options: dict[str, Any], more: Mapping[str, Any]) -> str:
    """Put `more` into `options`; return the key that both set, if there is one."""
    for key, value in more.items():
        if key not in options:
            options[key] = value
        elif not (isinstance(value, Mapping) and isinstance(options[key], Mapping)):
            return key
        else:
            options[key] = dict(options[key])
            twice = _lay_over(options[key], value)
            if twice:
                return f"{key}.{twice}"
    return ""


def _translate(file: CampaignFile, data: dict[str, Any]) -> Optional[tuple[str, ...]]:
    if not of_cbt.is_of_cbt(data):
        return ()
    if refusal := of_cbt.refusal(data):
        file.problem(*refusal)
        return None
    file.document = replace(file.document, data=of_cbt.translated(data))
    return tuple(of_cbt.notes(data))


def _controlled(
    file: CampaignFile,
    cluster: ClusterSection,
    configurations: dict[str, tuple[Overlay, ...]],
    baseline: Baseline,
) -> tuple[ClusterSection, dict[str, tuple[Overlay, ...]]]:
    file.note(name_taken(cluster, baseline))
    if not wants_control(cluster, baseline):
        return cluster, configurations
    if baseline.dimension == "configuration":
        configurations = behind_baseline(configurations, baseline)
    return controlled(cluster, baseline), configurations


def _laid_out(
    file: CampaignFile, cluster: ClusterSection, configurations: dict[str, tuple[Overlay, ...]]
) -> tuple[ClusterSection, tuple[side_by_side.Group, ...]]:
    """The section with a slice of each drive for each group, where they stand side by side."""
    stacks = {name: Stack(overlays) for name, overlays in configurations.items()}
    wrong = list(side_by_side.contradictions(cluster, stacks))
    file.note(wrong)
    if wrong or cluster.layout != "side_by_side":
        return cluster, ()
    together = side_by_side.groups_of(stacks)
    return divided(cluster, len(together)), together


def _check_cluster(file: CampaignFile, cluster: ClusterSection, needs_cluster: bool) -> None:
    for name in cluster.osd_drives:
        if not file.known(("cluster", "osd_drives"), name, "drive", cluster.drives):
            return
    for variant in variants(cluster):
        file.note(checks.origin_of(at(cluster, variant)).contradictions(needs_cluster))


def _baseline(file: CampaignFile, cluster: ClusterSection) -> Optional[Baseline]:
    path: KeyPath = ("cluster", "baseline")
    baseline = baseline_of(cluster)
    if isinstance(baseline, str):
        file.problem(path, baseline)
        return None
    if baseline.dimension == "configuration":
        names = cluster.configurations
        return baseline if file.known(path, str(baseline.value), "configuration", names) else None
    return baseline


def _needs_cluster(data: Mapping[str, Any]) -> bool:
    sections = data.get("benchmarks")
    names = list(sections) if isinstance(sections, dict) else []
    known = [SCENARIOS[name] for name in names if name in SCENARIOS]
    return not names or len(known) < len(names) or any(each.needs_cluster for each in known)


def _configurations(file: CampaignFile, cluster: ClusterSection) -> dict[str, tuple[Overlay, ...]]:
    configurations = {
        name: _overlays(file, ("cluster", "configurations", name), overlays)
        for name, overlays in cluster.configurations.items()
    }
    for overlay in OVERLAYS.values():
        configurations = overlay.beside(configurations)
    return _with_pools(file, cluster, configurations)


def _with_pools(
    file: CampaignFile, cluster: ClusterSection, configurations: dict[str, tuple[Overlay, ...]]
) -> dict[str, tuple[Overlay, ...]]:
    """All configurations with what is to be true of each pool that one of them makes otherwise."""
    own = {name: next((each for each in overlays if isinstance(each, Pools)), Pools.make_absent())
           for name, overlays in configurations.items()}  # fmt: skip
    for name, overlay in own.items():
        for pool, profile in overlay.chosen.items():
            path: KeyPath = ("cluster", "configurations", name, "pools", pool)
            for each in (pool, profile):
                file.known(path, each, "pool profile", cluster.pool_profiles)
    named = dict.fromkeys(pool for overlay in own.values() for pool in overlay.chosen)
    if not named or file.problems:
        return configurations
    profiles = at(cluster).pool_profiles
    with_pools = {}
    for name, overlays in configurations.items():
        used = {pool: profiles[own[name].pool_profile(pool)] for pool in named}
        states = {pool: pool_state(cluster, profile) for pool, profile in used.items()}
        others = (each for each in overlays if not isinstance(each, Pools))
        with_pools[name] = (*others, own[name].proving(states))
    return with_pools


def _overlays(
    file: CampaignFile, path: KeyPath, overlays: Mapping[str, Any]
) -> tuple[Overlay, ...]:
    checked = []
    for name, options in overlays.items():
        if name in OVERLAYS:
            checked.append(file.model(OVERLAYS[name], (*path, name), options))
            continue
        of_ceph = name.partition(".")[0] in ceph_options.KINDS
        inside = (one for one, model in OVERLAYS.items() if name in model.model_fields)
        if place := "ceph_options" if of_ceph else next(inside, ""):
            file.problem((*path, name), f"is no overlay; write it in {place}: {{{name}: ...}}")
        else:
            file.known((*path, name), name, "overlay", OVERLAYS)
    return tuple(overlay for overlay in checked if overlay is not None)


def _scenarios(
    file: CampaignFile, cluster: ClusterSection, baseline: Baseline
) -> dict[str, tuple[Scenario, ...]]:
    sections = file.mapping(("benchmarks",), file.document.data.get("benchmarks"))
    if not sections and "benchmarks" in file.document.data:
        file.problem(("benchmarks",), f"is empty; name a scenario: {', '.join(SCENARIOS)}")
    by_name = {}
    with_control = partial(_with_control, cluster, baseline)
    for name, section in sections.items():
        if file.known(("benchmarks", name), name, "benchmark", SCENARIOS):
            path: KeyPath = ("benchmarks", name)
            if isinstance(section, list) and not section:
                file.problem(path, "is empty; give at least one")
            objects: list[Scenario] = []
            for inner, part in _parts(file, name, path, section):
                objects += _scenario_objects(file, cluster, name, inner, with_control(part))
            by_name[name] = tuple(objects)
            _check_overlays(file, cluster, by_name[name])
            precise = [each for each in by_name[name] if each.until]
            if any("log_avg_msec" not in type(each).model_fields for each in precise):
                file.problem((*path, "time"), "cannot be a precision here; give seconds")
    if any(each.until for objects in by_name.values() for each in objects):
        file.note(checks.until_precise(cluster))
    return by_name


def _parts(file: CampaignFile, name: str, path: KeyPath, section: Any) -> list[tuple[KeyPath, Any]]:
    listed = list(enumerate(section)) if isinstance(section, list) else []
    parts: list[tuple[KeyPath, Any]] = [((*path, n), part) for n, part in listed]
    all_parts: list[tuple[KeyPath, Any]] = []
    for part_path, part in parts or [(path, section)]:
        named = named_workloads(part)
        if named is None:
            all_parts.append((part_path, part))
            continue
        shared = {key: value for key, value in part.items() if key != "workloads"}
        for workload, options in named.items():
            inner_path = (*part_path, "workloads", workload)
            inner = file.mapping(inner_path, options)
            called = {"workload": workload} if issubclass(SCENARIOS[name], OfUpstream) else {}
            all_parts.append((inner_path, {**shared, **inner, **called}))
    return all_parts


def _with_control(cluster: ClusterSection, baseline: Baseline, section: Any) -> Any:
    """A section that lists what is compared (configurations, drives) lists the control too."""
    key = baseline.dimension
    listed = section.get(key) if isinstance(section, dict) else None
    if listed is None or not wants_control(cluster, baseline):
        return section
    return {**section, key: in_section(listed, baseline)}


def _check_overlays(
    file: CampaignFile, cluster: ClusterSection, scenarios: tuple[Scenario, ...]
) -> None:
    for scenario in (each for each in scenarios if not each.needs_cluster):
        for name in cluster.configurations[scenario.configuration]:
            if name in OVERLAYS and not OVERLAYS[name].is_for_drives:
                file.problem(
                    ("cluster", "configurations", scenario.configuration, name),
                    f"changes nothing on drives without Ceph; list under {scenario.name} the "
                    "configurations that it is to measure",
                )


def _scenario_objects(
    file: CampaignFile, cluster: ClusterSection, name: str, path: KeyPath, section: Any
) -> tuple[Scenario, ...]:
    before = len(file.problems)
    options: dict[str, Any] = {"configuration": list(cluster.configurations)}
    if not SCENARIOS[name].needs_cluster:
        # Outside of all that varies on a drive: another one takes time to prepare.
        options["drive"] = list(cluster.drives)
        if not cluster.drives:
            file.problem(("cluster", "drives"), f"is missing; name the drives of {name}")
            return ()
    options.update(file.mapping(path, section))
    options["workloads"] = file.mapping((*path, "workloads"), options.get("workloads"))
    places = len(variants(cluster)) if SCENARIOS[name].needs_cluster else 1
    file.cells += math.prod(map(len, flatten(options).values())) * cluster.iterations * places
    if file.cells > documents.MOST_CELLS:
        made = f"make more than {documents.MOST_CELLS} cells; shorten them"
        file.problem(path, f"its lists, and what is above it, {made}")
        return ()
    _check_elements(file, SCENARIOS[name], path, options)
    _check_references(file, cluster, path, options)
    if len(file.problems) > before:
        return ()
    objects = [file.model(SCENARIOS[name], path, chosen) for chosen in combinations(options)]
    return tuple(scenario for scenario in objects if scenario is not None)


def _check_elements(
    file: CampaignFile, scenario: type[Scenario], path: KeyPath, options: Mapping[str, Any]
) -> None:
    """Validate each listed value by itself, so that the sentence can name the element."""
    values = flatten(options)
    sample = {key: listed[0] for key, listed in values.items() if listed}
    workloads = options.get("workloads") or {}
    for key, listed in values.items():
        element_path = (*path, "workloads", key) if key in workloads else (*path, key)
        if not listed:
            file.problem(element_path, "is an empty list; give at least one value")
        many = isinstance((workloads if key in workloads else options)[key], list)
        for index, value in enumerate(listed):
            found_at = (*element_path, index) if many else element_path
            _check_element(file, scenario, found_at, sample, key, value)


def _check_element(
    file: CampaignFile,
    scenario: type[Scenario],
    element_path: KeyPath,
    sample: Mapping[str, Any],
    key: str,
    value: Any,
) -> None:
    try:
        scenario.model_validate({**sample, key: value})
    except ValidationError as error:
        unknown = key not in keys_of(scenario)
        for location, wrong in checks.sentences(scenario, error):
            if location[:1] == (key,):
                found_at = (*element_path, *location[1:])
                listed = element_path[:-1] if isinstance(element_path[-1], int) else element_path
                file.problem(listed if unknown else found_at, wrong)


def _check_references(
    file: CampaignFile, cluster: ClusterSection, path: KeyPath, options: Mapping[str, Any]
) -> None:
    values = flatten(options)
    for key, kind, names in (
        ("configuration", "configuration", cluster.configurations),
        ("pool_profile", "pool profile", cluster.pool_profiles),
        ("data_pool_profile", "pool profile", cluster.pool_profiles),
        ("drive", "drive", cluster.drives),
    ):
        for value in values.get(key, []):
            if isinstance(value, str):
                file.known((*path, key), value, kind, names)
