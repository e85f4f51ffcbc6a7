"""The report's files in a directory, each whole or not there."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Optional

from cbt_crypto.archive.files import Malformed, held, numbered, open_regular, read_json, write_whole
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
#: How a report.json of ours begins, in every format; and the charts that one may list.
_OURS = re.compile(rb'\{\s*"format":\s*\d+,\s*"title":')
_CHART = re.compile(r"charts/[\w.-]+\.(svg|folded)", re.ASCII)


def write(report: Report, out_dir: Path, reload_s: Optional[int] = None) -> list[Path]:
    """Write report.md, .csv, .json, .html and charts/ into `out_dir`; return their paths.

    The page reloads every `reload_s` seconds. UsageError, nothing touched, if the directory cannot
    be written; RunError when that shows midway.
    """
    _check_place(out_dir)
    shown = without_missing(report)
    of_tables = charts_of(shown)
    drawn = _apart(_drawn(shown, of_tables))
    everything = {**document(report), "charts": list(drawn)}
    as_json = json.dumps(everything, ensure_ascii=False, allow_nan=False) + "\n"
    html = page(shown, reload_s, of_tables)
    texts = dict(zip(_FILES, (markdown(shown), tidy(report), wide(report), as_json, html)))
    texts |= drawn
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        # Whoever owns the directory may put a link in the place of each one below it, at any time.
        with held(out_dir) as out:
            before = _charts(out / "report.json")
            (out / "charts").mkdir(exist_ok=True)
            with held(out / "charts", os.O_NOFOLLOW) as charts:
                for name, text in texts.items():
                    write_whole((charts if "/" in name else out) / Path(name).name, text)
                for name in before - texts.keys():
                    stale = charts / Path(name).name
                    if stale.is_file() and not stale.is_symlink():
                        stale.unlink()
        return [out_dir / name for name in texts]
    except OSError as error:
        raise RunError(f"{out_dir}: the report cannot be written ({error.strerror})") from None


def check_replaced(out_dir: Path, more: Iterable[str] = ()) -> None:
    """Raise UsageError for a directory with files of these names that no report of ours wrote."""
    names = [name for name in (*_FILES, *more) if os.path.lexists(out_dir / name)]
    names += [f"charts/{path.name}" for path in out_dir.glob("charts/*")]
    found = [name for name in names if "/" not in name or _CHART.fullmatch(name)]
    if found and not _is_ours(out_dir / "report.json"):
        raise UsageError(
            f"{out_dir / found[0]}: is of no report of cbt-crypto's, and would be replaced; "
            "name another directory with -o"
        )


def _is_ours(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            return _OURS.match(file.read(100)) is not None
    except (Malformed, OSError):
        return False


def _charts(path: Path) -> set[str]:
    """The charts that the report.json there lists as its own."""
    listed = (read_json(path) or {}).get("charts") if _is_ours(path) else None
    names = listed if isinstance(listed, list) else []
    return {name for name in names if isinstance(name, str) and _CHART.fullmatch(name)}


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
