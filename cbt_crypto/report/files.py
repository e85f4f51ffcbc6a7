"""The report's files in a directory, each whole or not there."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Optional

from cbt_crypto.archive.files import held, numbered, write_whole
from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.report.charts import chart_values
from cbt_crypto.report.charts.draw import chart_svg, file_name
from cbt_crypto.report.charts.flame import folded_files
from cbt_crypto.report.charts.forest import forest, forest_svg
from cbt_crypto.report.document import document, tidy, wide
from cbt_crypto.report.markdown import markdown
from cbt_crypto.report.model import Report, without_missing
from cbt_crypto.report.page import OfTables, charts_of, page

_FILES = ("report.md", "report.csv", "report-wide.csv", "report.json", "report.html")


def write(report: Report, out_dir: Path, reload_s: Optional[int] = None) -> list[Path]:
    """Write report.md, .csv, .json, .html and charts/ into `out_dir`; return their paths.

    The page reloads every `reload_s` seconds. UsageError, nothing touched, if the directory cannot
    be written; RunError when that shows midway.
    """
    _check_place(out_dir)
    shown = without_missing(report)
    of_tables = charts_of(shown)
    as_json = json.dumps(document(report), ensure_ascii=False, allow_nan=False) + "\n"
    html = page(shown, reload_s, of_tables)
    texts = dict(zip(_FILES, (markdown(shown), tidy(report), wide(report), as_json, html)))
    texts |= _apart(_drawn(shown, of_tables))
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        # Whoever owns the directory may put a link in the place of each one below it, at any time.
        with held(out_dir) as out:
            (out / "charts").mkdir(exist_ok=True)
            with held(out / "charts", os.O_NOFOLLOW) as charts:
                for name, text in texts.items():
                    write_whole((charts if "/" in name else out) / Path(name).name, text)
        return [out_dir / name for name in texts]
    except OSError as error:
        raise RunError(f"{out_dir}: the report cannot be written ({error.strerror})") from None


def _check_place(out_dir: Path) -> None:
    charts = out_dir / "charts"
    if charts.is_symlink():
        raise UsageError(f"{charts}: is a link; remove it")
    for name in _FILES:
        if (out_dir / name).is_dir():
            raise UsageError(f"{out_dir / name}: is a directory; remove it, or name another -o")
    existing = [next(path for path in (out_dir, *out_dir.parents) if os.path.lexists(path))]
    existing += [charts] if charts.exists() else []
    try:
        for folder in existing:
            with tempfile.TemporaryFile(dir=folder):
                pass
    except OSError as error:
        raise UsageError(
            f"{out_dir}: the report cannot be written ({error.strerror}); "
            "name another directory with -o"
        ) from None


def _drawn(report: Report, of_tables: OfTables) -> Iterator[tuple[str, str]]:
    picture = forest(report)
    if picture is not None:
        yield "charts/forest.svg", forest_svg(picture, is_file=True)
    of_loads = (
        (chart, table.title, report.emulated_note(table))
        for table in report.tables
        for chart in of_tables[table.title][0]
    )
    over_tables = (chart_values.size_charts, chart_values.depth_charts)
    over = (chart_values.noted(report, report.tables, each) for each in over_tables)
    colours = chart_values.inks(report)
    for chart, heading, note in (*of_loads, *chain.from_iterable(over)):
        lines = tuple(filter(None, (chart.title, heading, note)))
        yield f"charts/{file_name(f'{heading}_{chart.key}')}.svg", chart_svg(chart, colours, lines)
    for _, flames in of_tables.values():
        yield from ((f"charts/{name}", text) for name, text in folded_files(flames))


def _apart(files: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Name -> text; names of rows that differ in letters which no file's name has are numbered."""
    found: dict[str, str] = {}
    for name, text in files:
        stem, dot, ending = name.partition(".")
        places = numbered(stem, dot + ending)
        found[next(place for place in places if found.get(place, text) == text)] = text
    return found
