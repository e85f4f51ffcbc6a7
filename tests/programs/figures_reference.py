"""Write the table of docs/figures.md: python tests/programs/figures_reference.py"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from cbt_crypto.report.figures.metric import METRICS, Test, Where

PAGE = Path(__file__).parents[2] / "docs" / "figures.md"
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->"
_BETTER = {1: "more", -1: "less", 0: ""}
_TABLES = {Where.TERMINAL: "all", Where.MARKDOWN: "Markdown, page", Where.PAGE: "page"}


def reference() -> str:
    """The table of docs/figures.md, as Markdown."""
    head = ("| key | of one cell | of several | better | tables |", "|---|---|---|---|---|")
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
    text = PAGE.read_text(encoding="utf-8")
    (before, _, _), (_, _, after) = text.partition(BEGIN), text.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{reference()}{END}{after}", encoding="utf-8")
