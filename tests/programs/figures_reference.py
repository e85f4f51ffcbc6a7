"""Print the table of docs/figures.md: python tests/programs/figures_reference.py"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from cbt_crypto.report.figures.metric import METRICS, Test, Where

_BETTER = {1: "more", -1: "less", 0: ""}
_TABLES = {Where.TERMINAL: "all", Where.MARKDOWN: "Markdown, page", Where.PAGE: "page"}


def reference() -> str:
    """The table of docs/figures.md, as Markdown."""
    head = ("| key | of one run | of several | better | tables |", "|---|---|---|---|---|")
    return "\n".join((*head, *_rows())) + "\n"


def _rows() -> Iterator[str]:
    for (about, several, better, has_test), alike in groupby(
        METRICS, lambda m: (m.about, m.several, m.better, m.test)
    ):
        metrics = list(alike)
        wheres = dict.fromkeys(
            "" if metric.column is None else _TABLES[metric.column.where] for metric in metrics
        )
        keys = ", ".join(f"`{metric.key}`" for metric in metrics)
        interval = "; no interval" if has_test is Test.NONE else ""
        where = ", ".join(filter(None, wheres))
        yield f"| {keys} | {about} | {several}{interval} | {_BETTER[better]} | {where} |"


if __name__ == "__main__":
    print(reference(), end="")
