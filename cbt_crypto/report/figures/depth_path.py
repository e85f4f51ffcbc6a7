"""Latency over IOPS along the depths of one workload, and where each curve bends.

The knee is the depth with the most power, IOPS by mean latency (Kleinrock, ICC 1979).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from cbt_crypto.report.figures.metric import BY_KEY
from cbt_crypto.report.model import ReportCell, Table

#: The parameters that are depths; the total wins, as it does in a run.
DEPTHS = ("total_iodepth", "iodepth")
#: With fewer depths there is no curve.
_LEAST = 3


@dataclass(frozen=True)
class DepthPoint:
    """One depth: IOPS and mean and 99th percentile of completion latency in ns."""

    depth: int
    iops: float
    clat_ns_mean: float
    clat_ns_p99: Optional[float]


@dataclass(frozen=True)
class Knee:
    """The depth with the most power; the bend is between the depths `low` and `high`."""

    depth: int
    low: int
    high: int


@dataclass(frozen=True)
class Curve:
    """One configuration's points by depth, and its knee; None where it was not reached."""

    name: str
    points: tuple[DepthPoint, ...]
    knee: Optional[Knee]


@dataclass(frozen=True)
class DepthPath:
    """The curves of one workload: a scenario, op size, direction, and other parameters."""

    heading: str
    key: str
    label: str
    depth: str
    curves: tuple[Curve, ...]


def depth_paths(tables: Iterable[Table]) -> Iterator[DepthPath]:
    """One for each workload that was measured at three depths or more."""
    for dimension in DEPTHS:
        for members in alike(tables, dimension).values():
            if len(members) >= _LEAST:
                yield from _paths(members, dimension)


def alike(tables: Iterable[Table], dimension: str) -> dict[object, dict[int, Table]]:
    """Tables that differ in nothing but a number, by that."""
    by_load: dict[object, dict[int, Table]] = {}
    for table in tables:
        number = table.dimensions.get(dimension)
        if isinstance(number, int) and not isinstance(number, bool):
            rest = tuple((k, v) for k, v in table.dimensions.items() if k != dimension)
            by_load.setdefault(rest, {})[number] = table
    return by_load


def _paths(members: Mapping[int, Table], dimension: str) -> Iterator[DepthPath]:
    members = dict(sorted(members.items()))
    first = next(iter(members.values()))
    own = f"{dimension} {first.dimensions[dimension]}"
    heading = ", ".join(part for part in first.title.split(", ") if part != own)
    sections = dict.fromkeys(s.label for table in members.values() for s in table.sections)
    for label in sections:
        rows = {
            depth: {c.in_legend: c for s in table.sections if s.label == label for c in s.cells}
            for depth, table in members.items()
        }
        names = dict.fromkeys(name for row in rows.values() for name in row)
        every = (_curve(name, {d: row.get(name) for d, row in rows.items()}) for name in names)
        curves = tuple(curve for curve in every if len(curve.points) >= _LEAST)
        if curves:
            key = f"by_{dimension}_{label.replace(' ', '_')}"
            yield DepthPath(heading, key, label, dimension, curves)


def _curve(name: str, cells: Mapping[int, Optional[ReportCell]]) -> Curve:
    points = tuple(point for depth, cell in cells.items() if (point := _point(depth, cell)))
    by_iteration = [knee for powers in _powers(cells) if (knee := _knee(powers))]
    overall = _knee({p.depth: p.iops / p.clat_ns_mean for p in points})
    knee = None
    if overall is not None:
        every = [overall, *by_iteration]
        knee = Knee(overall.depth, min(k.low for k in every), max(k.high for k in every))
    return Curve(name, points, knee)


def _point(depth: int, cell: Optional[ReportCell]) -> Optional[DepthPoint]:
    figures = {} if cell is None else cell.figures
    if not figures.get("iops") or not figures.get("clat_ns_mean"):
        return None
    mean, p99 = figures["clat_ns_mean"], figures.get("clat_ns_p99")
    return DepthPoint(depth, figures["iops"], mean, p99)


def _powers(cells: Mapping[int, Optional[ReportCell]]) -> Iterator[dict[int, float]]:
    """Depth -> IOPS by ns, for each iteration that has them at every depth."""
    runs: dict[int, dict[int, float]] = {}
    for depth, cell in cells.items():
        for run in () if cell is None else cell.runs:
            direction = "" if cell is None else cell.direction
            iops = BY_KEY["iops"].of([run], direction) if run.failure is None else None
            mean = BY_KEY["clat_ns_mean"].of([run], direction) if iops else None
            if iops and mean:
                runs.setdefault(run.planned.iteration, {})[depth] = iops / mean
    yield from (powers for powers in runs.values() if len(powers) == len(cells))


def _knee(powers: Mapping[int, float]) -> Optional[Knee]:
    """None where the most power is at the last depth: the curve was not followed to its bend."""
    depths: Sequence[int] = sorted(powers)
    if len(depths) < _LEAST:
        return None
    best = max(range(len(depths)), key=lambda index: powers[depths[index]])
    if best == len(depths) - 1:
        return None
    return Knee(depths[best], depths[max(best - 1, 0)], depths[best + 1])


def in_words(path: DepthPath, curve: Curve) -> str:
    """`LUKS: knee at iodepth 16 (8 to 32): 12,300 IOPS at 1.30 ms`, for lists."""
    if curve.knee is None:
        deepest = curve.points[-1].depth
        return f"{curve.name}: no knee up to {path.depth} {deepest}; measure deeper"
    knee = curve.knee
    point = next(candidate for candidate in curve.points if candidate.depth == knee.depth)
    where = f"knee at {path.depth} {knee.depth} (between {knee.low} and {knee.high})"
    return f"{curve.name}: {where}: {point.iops:,.0f} IOPS at {point.clat_ns_mean / 1e6:.3g} ms"
