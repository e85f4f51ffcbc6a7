"""Flame graphs of what OSDs and dm-crypt ran for an IO, against the baseline; and folded files.

As Gregg's (2014), but a colour is of a frame with all that it called, and chance has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape

from cbt_crypto.report.charts.draw import GROUND_LIGHT, Canvas, file_name
from cbt_crypto.report.figures.of_runs import total_rate
from cbt_crypto.report.model import ReportCell, Table
from cbt_crypto.results.cell.run import Run

#: Pixels, and about so wide is a letter of 11 px.
_WIDTH, _ROW, _LETTER = 1200.0, 17.0, 6.2
#: Frames of all graphs of a page, at 300 bytes; of one of many, and of one of few.
_FRAMES, _FEWEST, _MOST = 6000, 40, 600
#: ColorBrewer's red and blue (RdBu), which all kinds of sight tell apart; the strongest last.
_SAME = "#dedad3"
_MORE, _LESS = ("#f4a582", "#d6604d", "#b2182b"), ("#92c5de", "#4393c3", "#2166ac")
#: Standard deviations of the counts that a difference must exceed.
_SURE = 2.0


@dataclass
class Frame:
    """ns of CPU per IO of a frame and all that it called: the baseline's, and the row's."""

    name: str
    base: float = 0.0
    own: float = 0.0
    callees: dict[str, Frame] = field(default_factory=dict)

    def __str__(self) -> str:
        own, difference, base = (ns / 1000 for ns in (self.own, self.own - self.base, self.base))
        return f"{own:,.4g} µs of CPU per IO, {difference:+,.3g} µs against {base:,.4g} µs"


@dataclass(frozen=True)
class PerIO:
    """ns of CPU per IO of each stack, outermost frame first; and of a single sample."""

    stacks: Mapping[str, float]
    sample: float


@dataclass(frozen=True)
class Flame:
    """One row against its baseline."""

    title: str
    name: str
    baseline: str
    base: PerIO
    own: PerIO

    @cached_property
    def tree(self) -> Frame:
        """All stacks of both; the frame without callers is of all threads."""
        root = Frame("all")
        for stack in sorted({*self.base.stacks, *self.own.stacks}):
            way = [root]
            for name in stack.split(";"):
                way.append(way[-1].callees.setdefault(name, Frame(name)))
            for frame in way:
                frame.base += self.base.stacks.get(stack, 0.0)
                frame.own += self.own.stacks.get(stack, 0.0)
        return root

    def sure(self, frame: Frame) -> float:
        """By how much it differs, or 0 where counts of samples differ so by chance (Poisson)."""
        difference = frame.own - frame.base
        deviation = math.sqrt(frame.own * self.own.sample + frame.base * self.base.sample)
        return difference if abs(difference) > _SURE * deviation else 0.0


def per_io(runs: Sequence[Run]) -> PerIO:
    """What an IO of all runs that were sampled took; empty without any."""
    sampled = [(run.stacks, run.window, total_rate(run, "iops")) for run in runs if not run.failure]
    known = [(stacks, window.seconds * iops) for stacks, window, iops in sampled
             if stacks is not None and window is not None]  # fmt: skip
    ios = sum(of_run for _, of_run in known)
    each: dict[str, float] = {}
    for stacks, _ in known if ios else ():
        for stack, samples in stacks.samples.items():
            each[stack] = each.get(stack, 0.0) + 1e9 * samples / stacks.hz / ios
    return PerIO(each, 1e9 / known[0][0].hz / ios if each else 0.0)


def flames(table: Table) -> Iterator[Flame]:
    """One for each row but the baseline, where both were sampled."""
    for section in table.sections:
        sides = [(cell, per_io(cell.runs)) for cell in section.cells]
        base = next(((c, side) for c, side in sides if c.is_baseline and side.stacks), None)
        for cell, own in sides if base else ():
            if base and own.stacks and not cell.is_baseline:
                title = f"{table.title}, {section.label}"
                yield Flame(title, cell.in_legend, base[0].in_legend, base[1], own)


def folded_files(flames: Iterable[Flame]) -> Iterator[tuple[str, str]]:
    """Names and texts for speedscope and inferno: ns per IO of each side, and of both together."""
    for flame in flames:
        for name, kind, columns in (
            (flame.baseline, "", [flame.base]),
            (flame.name, "", [flame.own]),
            (flame.name, ".diff", [flame.base, flame.own]),
        ):
            stacks = sorted({stack for side in columns for stack in side.stacks})
            rows = ((s, [round(side.stacks.get(s, 0.0)) for side in columns]) for s in stacks)
            lines = (f"{stack} {' '.join(map(str, ns))}\n" for stack, ns in rows if any(ns))
            yield f"{file_name(f'{flame.title} {name} stacks')}{kind}.folded", "".join(lines)


def frames_of_each(cells: Sequence[ReportCell]) -> int:
    """How many frames a graph of each of these rows may have, so that a page stays small."""
    sampled = sum(any(run.stacks for run in cell.runs) for cell in cells)
    return max(_FEWEST, min(_MOST, _FRAMES // max(sampled, 1)))


def flame_svg(flame: Flame, most: int = _MOST) -> str:
    """Its `most` widest frames of a pixel or more, the outermost at the foot."""
    root = flame.tree
    scale = _WIDTH / root.own
    # A frame is no wider than its caller, which so comes before it.
    widest = sorted(_placed(root), key=lambda one: (-one[0].own, one[1]))[:most]
    placed = [one for one in widest if one[0].own * scale >= 1]
    largest = max((abs(flame.sure(one)) for one, depth, _ in placed if depth > 1), default=0.0)
    foot = max(depth for _, depth, _ in placed) * _ROW
    canvas = Canvas()
    for frame, depth, start in placed:
        x, y, width = start * scale, foot - depth * _ROW, frame.own * scale
        fill, ink = _colours(flame.sure(frame), largest)
        tip = f"<title>{escape(frame.name)}: {frame}</title>"
        canvas.add("rect", tip, x=x, y=y, width=max(width - 0.5, 0.5), height=_ROW - 1, fill=fill)
        fits = int((width - 4) / _LETTER)
        if fits > 2:
            shown = frame.name if len(frame.name) <= fits else f"{frame.name[: fits - 1]}…"
            canvas.add("text", escape(shown), x=x + 2, y=y + 12, fill=ink, font_size=11,
                       pointer_events="none")  # fmt: skip
    return canvas.document(_WIDTH, foot + _ROW, caption(flame), is_file=False)


def caption(flame: Flame) -> str:
    """What it shows, in words."""
    return f"{flame.name} against {flame.baseline}: {flame.tree}"


def _placed(frame: Frame, depth: int = 0, start: float = 0.0) -> Iterator[tuple[Frame, int, float]]:
    """Each frame that the row has, with its callers' number and ns per IO to its left."""
    yield frame, depth, start
    for _, callee in sorted(frame.callees.items()):
        if callee.own > 0:
            yield from _placed(callee, depth + 1, start)
            start += callee.own


def _colours(difference: float, largest: float) -> tuple[str, str]:
    """Of a frame and of the text in it."""
    strength = min(int(3 * abs(difference) / largest), 2) if largest else 0
    fill = (_MORE if difference > 0 else _LESS)[strength] if difference else _SAME
    return fill, "#ffffff" if difference and strength else GROUND_LIGHT["ink"]
