from __future__ import annotations

import pytest

from cbt_crypto.results.precision.warmup import warmup

pytestmark = pytest.mark.unit


def brute_force(series: list[float]) -> int:
    def error(start: int) -> float:
        rest = series[start:]
        mean = sum(rest) / len(rest)
        return sum((value - mean) ** 2 for value in rest) / len(rest) ** 2

    return min(range(len(series) // 2 + 1), key=error)


@pytest.mark.parametrize(
    "series",
    [
        [1, 5, 9, 10, 11, 10, 9, 10],
        [100, 200, 300, 301, 299, 302, 298, 300, 303, 297],
        [5, 4, 6, 5, 4, 6, 5, 4, 6, 5],
        [30, 30, 10, 11, 9, 10, 11, 10],
        [1e9 + n % 3 for n in range(20)],
    ],
)
def test_it_is_what_the_rule_says(series: list[float]) -> None:
    assert warmup(series) == brute_force(series)


def test_a_steady_series_keeps_all_of_it() -> None:
    assert warmup([7.0] * 10) == 0
    assert [warmup([]), warmup([3.0]), warmup([1.0, 2.0])] == [0, 0, 0]


def test_at_most_half_is_left_out() -> None:
    assert warmup([float(n) for n in range(10)]) == 5
