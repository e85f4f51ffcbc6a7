"""Charts over the depths of a load: latency over IOPS, a curve for each configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cbt_crypto.report.charts.chart import Line, Lines
from cbt_crypto.report.figures.depth_path import DepthPath, depth_paths
from cbt_crypto.report.model import Table


def depth_charts(tables: Iterable[Table]) -> Iterator[tuple[str, Lines]]:
    """Heading and chart for each load that was measured at several depths."""
    for path in depth_paths(tables):
        yield path.heading, _chart(path)


def _chart(path: DepthPath) -> Lines:
    lines = tuple(
        Line(
            curve.name,
            tuple(point.iops for point in curve.points),
            tuple(point.clat_ns_mean / 1e6 for point in curve.points),
            labels=tuple(str(point.depth) for point in curve.points),
            mark=None if curve.knee is None else _point_at(path, curve.name, curve.knee.depth),
        )
        for curve in path.curves
    )
    return Lines(
        key=path.key,
        title=f"Mean latency over IOPS by {path.depth}, {path.label}",
        x_label="IO/s",
        y_label="ms",
        lines=lines,
        is_path=True,
    )


def _point_at(path: DepthPath, name: str, depth: int) -> int:
    """Which point of a curve is at that depth."""
    points = next(curve.points for curve in path.curves if curve.name == name)
    return next(n for n, point in enumerate(points) if point.depth == depth)
