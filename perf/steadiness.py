"""How often a cell is said to have lost its level: where it did not, and where it did.

    python perf/steadiness.py [--series 1000]

Prints the table of docs/method-trial.md: percent of windows that are warned of, by their length. In
the first rows nothing moves for good; AR(1) 0.97 wanders for half a minute at a time, and so, in a
window of a minute, has a trend. The rest has a level shift or a slope of 10 %, or is of
perf/disturbances.py, as campaigns meet it.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from simulated.disturbances import DISTURBANCES, Floats, Generator, Series, ar1, together, white

from cbt_crypto.report.figures.doubts import change_of

LENGTHS_S = (30, 60, 120, 300)


def step(share: float, at: float) -> Series:
    def made(count: int, length: int, round_s: float, random: Generator) -> Floats:
        return np.where(np.arange(length) < at * length, 0.0, math.log1p(share))

    return made


def slope(share: float) -> Series:
    def made(count: int, length: int, round_s: float, random: Generator) -> Floats:
        found: Floats = np.log1p(share * np.arange(length) / length)
        return found

    return made


NOISES: dict[str, Series] = {
    "seconds alone, 3 %": white(0.03),
    "seconds alone, 10 %": white(0.1),
    **{f"AR(1) {kept}, 3 %": ar1(kept, 0.03) for kept in (0.5, 0.7, 0.9, 0.97)},
    **{f"AR(1) {kept}, 10 %": ar1(kept, 0.1) for kept in (0.5, 0.7, 0.9, 0.97)},
}
CHANGES: dict[str, Series] = {
    "level falls by 10 %": step(-0.1, 0.5),
    "the same after a quarter": step(-0.1, 0.25),
    "slope of 10 %": slope(-0.1),
}
_MOVING = (
    *("cycle of 30 s", "cycle of 60 s", "cycle of 120 s", "level shifts", "neighbour, a minute"),
    *("heavy tails", "stalls", "drift", "all at once"),
)
CHANGED = ("seconds alone, 3 %", "seconds alone, 10 %", "AR(1) 0.5, 3 %", "AR(1) 0.9, 3 %")


def rows() -> dict[str, Series]:
    """Name -> what makes the logarithms of a window's seconds."""
    found = dict(NOISES)
    for noise in CHANGED:
        for name, change in CHANGES.items():
            found[f"{name} in {noise}"] = together(NOISES[noise], change)
    for one in DISTURBANCES:
        if one.name in _MOVING:
            found[one.name] = one.series
    return found


def percent(series: Series, length: int, number: int, seed: int) -> float:
    """Of `number` windows of `length` seconds how many are warned of."""
    logs = series(number, length, length, np.random.default_rng(seed))
    windows = 20_000 * np.exp(np.broadcast_to(logs, (number, length)))
    return 100 * sum(change_of(iops) is not None for iops in windows) / number


def table(number: int) -> str:
    """Of so many windows of each kind."""
    lines = [
        f"| seconds | {' | '.join(f'{length} s' for length in LENGTHS_S)} |",
        f"| --- | {' | '.join('---:' for _ in LENGTHS_S)} |",
    ]
    for name, series in rows().items():
        found = (f"{percent(series, length, number, 1):.1f}" for length in LENGTHS_S)
        lines.append(f"| {name} | {' | '.join(found)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=1000, help="windows of each kind")
    print(table(parser.parse_args().series))


if __name__ == "__main__":
    main()
