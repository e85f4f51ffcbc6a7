"""report.html: one file with everything in it, which needs no network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from lxml import html

from cbt_crypto import __version__
from cbt_crypto.archive.documents import OverlayProof
from cbt_crypto.report import page_tables, text_of
from cbt_crypto.report.across import minute, side_by_side
from cbt_crypto.report.charts import draw
from cbt_crypto.report.charts.chart_values import (
    Chart,
    charts,
    depth_charts,
    inks,
    noted,
    size_charts,
)
from cbt_crypto.report.charts.draw import chart_svg, file_name
from cbt_crypto.report.charts.flame import Flame, caption, flame_svg, flames, frames_of_each
from cbt_crypto.report.charts.forest import forest, forest_svg
from cbt_crypto.report.figures.conclusion import loss_tables
from cbt_crypto.report.figures.depth_path import depth_paths, in_words
from cbt_crypto.report.figures.doubts import CONTROL
from cbt_crypto.report.markdown import summary
from cbt_crypto.report.model import Report, Table
from cbt_crypto.report.page_tables import E, Element, anchor, scrolling
from cbt_crypto.report.wording import Grid, cipher_grid, energy_counters, hardware_grid, mapping
from cbt_crypto.results.cell.run import Run

#: What of a host is shown in the table; the rest is a click away.
_HOST_COLUMNS = ("roles", "cpu_model", "cores", "threads", "smt", "governor", "kernel", "os")


def configurations(report: Report) -> Iterator[Element]:
    """Each configuration, and the control: its proof in every cell, its ceph.conf."""
    runs: dict[str, dict[int, Run]] = {}
    for cell in report.cells:
        for run in cell.runs:
            runs.setdefault(run.planned.configuration, {})[id(run)] = run
    for name in dict.fromkeys([*report.configurations, *([CONTROL] if CONTROL in runs else [])]):
        of_configuration = list(runs.get(name, {}).values())
        proofs = [run for run in of_configuration if run.proof is not None]
        proved = sum(run.proof is not None and run.proof.proved for run in proofs)
        in_cells = f"proved in {proved} of {len(of_configuration)} cells"
        state = in_cells if proofs else "nothing was proved"
        again = "the baseline again, to see what is chance; " if name == CONTROL else ""
        attributes = {"id": fragment} if (fragment := anchor(report, name)) else {}
        yield E.DETAILS(
            E.SUMMARY(name, " ", E.SPAN(E.CLASS("small"), again, state)),
            E.DIV(*_proofs(proofs), *_conf(report, name)),
            **attributes,
        )


def _proofs(runs: list[Run]) -> Iterator[Element]:
    if not runs:
        return
    yield E.H4("Proof")
    rows = [
        E.TR(
            E.TH(run.planned.path, E.CLASS("name"), scope="row"),
            E.TD(overlay.overlay, E.CLASS("name")),
            E.TD(
                E.SPAN(E.CLASS("proved" if overlay.proved else "failed"), _word(overlay)),
                E.CLASS("name"),
            ),
            E.TD(overlay.reason, E.CLASS("name")),
        )
        for run in runs
        if run.proof is not None
        for overlay in run.proof.overlays
    ]
    heads = ("Cell", "Overlay", "", "Why")
    yield scrolling(E.TABLE(_table_head(heads), E.TBODY(*rows)), "Proof")
    first = runs[0].proof
    if first is not None and first.overlays:
        yield E.H4(f"Evidence of {runs[0].planned.path}")
        yield _json_block({overlay.overlay: overlay.evidence for overlay in first.overlays})


def _word(overlay: OverlayProof) -> str:
    state = "in force" if overlay.present else "absent"
    return f"proved {state}" if overlay.proved else f"not proved {state}"


def _conf(report: Report, name: str) -> Iterator[Element]:
    text = mapping(report.environment.get("ceph_conf")).get(name)
    if isinstance(text, str) and text.strip():
        yield E.H4("ceph.conf")
        yield E.PRE(text, tabindex="0")


def environment(report: Report) -> Iterator[Element]:
    """The hosts in a table, and all that was recorded of them a click away."""
    named = mapping(report.environment.get("hosts"))
    hosts = {name: mapping(about) for name, about in named.items()}
    if not hosts:
        yield E.P(E.CLASS("note"), "Nothing is known about the hosts.")
        return
    columns = [c for c in _HOST_COLUMNS if any(about.get(c) for about in hosts.values())]
    heads = ["Host", *(column.replace("_", " ") for column in columns), "Ceph", "fio"]
    counters = energy_counters(report.environment)
    heads += ["energy counters"] if counters else []
    rows = [
        _host(name, about, columns, [counters.get(name)] if counters else [])
        for name, about in hosts.items()
    ]
    yield scrolling(E.TABLE(_table_head(heads), E.TBODY(*rows)), "Hosts")
    found = (hardware_grid(report.environment), cipher_grid(report.environment))
    yield from _grids(report, filter(None, found))
    rest = {key: value for key, value in report.environment.items() if key != "ceph_conf"}
    yield E.DETAILS(E.SUMMARY("Everything that was recorded"), E.DIV(_json_block(rest)))


def _table_head(texts: Sequence[str]) -> Element:
    return E.THEAD(E.TR(*(E.TH(text, E.CLASS("name"), scope="col") for text in texts)))


def _host(
    name: str, about: Mapping[str, Any], columns: list[str], more: list[Optional[str]]
) -> Element:
    versions = mapping(about.get("versions"))
    values = [*(about.get(c) for c in columns), versions.get("ceph"), versions.get("fio"), *more]
    emulated = [" ", E.SPAN(E.CLASS("failed"), "emulated")] if about.get("emulated") else []
    head = E.TH(name, *emulated, E.CLASS("name"), scope="row")
    return E.TR(head, *(E.TD(_text(value), E.CLASS("name")) for value in values))


def _text(value: Optional[Any]) -> str:
    if value is None:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _json_block(value: Any) -> Element:
    return E.PRE(json.dumps(value, indent=1, ensure_ascii=False, default=str), tabindex="0")


_TEMPLATES = Path(__file__).parent / "templates"
#: Nothing may be fetched, whatever a name in an archive says.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
)
_NAVIGATION = (
    ("summary", "Summary"),
    ("configurations", "Configurations"),
    ("environment", "Environment"),
    ("method", "Method"),
)


#: Title of a table -> what is drawn of it.
OfTables = Mapping[str, tuple[list[Chart], list[Flame]]]


def charts_of(report: Report) -> OfTables:
    """What is drawn of each table, for the page and the files."""
    return {table.title: ([*charts(table)], [*flames(table)]) for table in report.tables}


def page(
    report: Report, reload_s: Optional[int] = None, of_tables: Optional[OfTables] = None
) -> str:
    """The report as one HTML document, with its styles, scripts and chart data inside.

    It reloads itself after `reload_s` seconds. `of_tables`: `charts_of` the report, where made.
    """
    figures = _PageCharts(report, charts_of(report) if of_tables is None else of_tables)
    body = E.BODY(
        E.A("Skip to the tables", E.CLASS("skip"), href="#main"),
        html.HtmlComment("chart 0"),
        _head(report),
        _navigation(report),
        E.MAIN(E.DIV(E.CLASS("wide"), *_sections(report, figures)), id="main"),
        E.FOOTER(E.DIV(E.CLASS("wide"), f"Made by cbt-crypto {__version__} from an archive.")),
        # No text may end the script that it is in.
        E.SCRIPT(summary(report).replace("<", "&lt;"), type="text/markdown", id="as-markdown"),
        E.SCRIPT((_TEMPLATES / "report.js").read_text(encoding="utf-8")),
    )
    refresh = {"http-equiv": "refresh", "content": str(reload_s)}
    head = E.HEAD(
        E.META(charset="utf-8"),
        E.META(name="viewport", content="width=device-width, initial-scale=1"),
        E.META(**{"http-equiv": "Content-Security-Policy", "content": _POLICY}),
        E.META(name="color-scheme", content="light dark"),
        *([] if reload_s is None else [E.META(**refresh)]),
        E.TITLE(f"{report.title or 'campaign'}: cbt-crypto report"),
        E.STYLE((_TEMPLATES / "report.css").read_text(encoding="utf-8") + draw.style()),
    )
    text = html.tostring(
        E.HTML(head, body, lang="en"), doctype="<!DOCTYPE html>", encoding="unicode"
    )
    return f"{figures.into(text)}\n"


class _PageCharts:
    """The charts of the page, in the order of their places, which comments hold in the tree."""

    def __init__(self, report: Report, of_tables: OfTables) -> None:
        self.of_tables = of_tables
        self._drawn = [f'<svg width="0" height="0" class="patterns">{draw.hatches()}</svg>']
        self._inks = inks(report)
        self._frames = frames_of_each(report.cells)

    def figure(self, chart: Chart, heading: str, note: str) -> Element:
        """A chart with its title and unit.

        Of `note`, what processors are emulated, stands the beginning.
        """
        unit = "" if hasattr(chart, "lines") else f", {chart.unit}"
        emulated = f" ({note.partition(':')[0]})" if note else ""
        drawn = chart_svg(chart, self._inks)
        return self.place(drawn, f"{heading}_{chart.key}", f"{chart.title}{unit}{emulated}")

    def place(self, drawn: str, name: str, title: str = "") -> Element:
        """A figure that people can save under a name that tells what it shows."""
        self._drawn.append(drawn)
        place = html.HtmlComment(f"chart {len(self._drawn) - 1}")
        caption = [E.FIGCAPTION(title)] if title else []
        plot = E.DIV(E.CLASS("plot"), place, tabindex="0")
        return E.FIGURE(*caption, plot, **{"data-file": file_name(name)})

    def flames(self, table: Table, note: str) -> Iterator[Element]:
        """What took CPU time of OSD hosts, of each row against the baseline, a click away."""
        emulated = f" ({note.partition(':')[0]})" if note else ""
        for flame in self.of_tables[table.title][1]:
            name = f"{flame.title}, {flame.name}"
            drawn = self.place(flame_svg(flame, self._frames), f"{name}_stacks", caption(flame))
            summary = E.SUMMARY(f"Flame graph, {name}{emulated}")
            yield E.DETAILS(summary, E.DIV(E.P(E.CLASS("note"), _FLAME), drawn))

    def into(self, text: str) -> str:
        """The page with its charts in their places; no other comment is in it."""
        return re.sub(r"<!--chart (\d+)-->", lambda found: self._drawn[int(found[1])], text)


_FLAME = (
    "On-CPU stacks of OSDs and of kernel workers such as dm-crypt's, sampled by perf. A frame is as"
    " wide as its CPU time per IO and stands on its caller. Red took more than the baseline, blue"
    " less; grey differs by no more than so few samples would by chance. charts/*.diff.folded also"
    " has what only the baseline ran."
)


def _head(report: Report) -> Element:
    what = "percent lost against" if report.options.loss else "percent of"
    return E.HEADER(
        E.CLASS("top"),
        E.DIV(
            E.CLASS("wide"),
            E.DIV(
                E.P(E.CLASS("kicker"), _kicker(report)),
                E.H1(report.title or "campaign"),
                E.P(
                    E.CLASS("lede"),
                    f"Throughput as {what} ",
                    E.B(report.baseline_name),
                    ".",
                    E.SPAN(E.CLASS("screen"), " A click on a configuration leads to its proof."),
                ),
                E.UL(E.CLASS("headline"), *map(E.LI, (*report.headline, *report.limits))),
            ),
            E.DIV(
                E.CLASS("buttons"),
                E.BUTTON("Dark", E.CLASS("theme"), type="button", hidden="hidden"),
            ),
        ),
    )


def _kicker(report: Report) -> str:
    started = report.environment.get("started")
    day = minute(started).partition(" ")[0] if isinstance(started, (int, float)) else ""
    return f"cbt-crypto report, measured on {day}" if day else "cbt-crypto report"


def _navigation(report: Report) -> Element:
    first, *others = (E.A(text, href=f"#{fragment}") for fragment, text in _NAVIGATION)
    loads = (E.A(name, href=f"#load-{n}") for n, name in enumerate(report.by_scenario))
    return E.NAV(E.DIV(E.CLASS("wide"), first, *loads, *others), **{"aria-label": "Sections"})


def _sections(report: Report, figures: _PageCharts) -> Iterator[Element]:
    yield E.SECTION(
        E.H2("Summary"),
        *_grids(report, side_by_side(report)),
        *_picture(report, figures),
        page_tables.summary(report),
        *page_tables.effects(report),
        *_grids(report, text_of.definitions(report)),
        id="summary",
    )
    for number, (name, tables) in enumerate(report.by_scenario.items()):
        loads = (part for table in tables for part in _load(report, table, figures))
        yield E.SECTION(
            E.H2(name),
            *_grids(report, loss_tables(report, name)),
            *_over_tables(report, tables, figures),
            *loads,
            id=f"load-{number}",
        )
    yield E.SECTION(E.H2("Configurations"), *configurations(report), id="configurations")
    yield E.SECTION(E.H2("Environment"), *environment(report), id="environment")
    yield E.SECTION(E.H2("Method"), *_method(report), id="method")


def _grids(report: Report, grids: Iterable[Grid]) -> Iterator[Element]:
    for grid in grids:
        yield from page_tables.grid(report, grid)


def _picture(report: Report, figures: _PageCharts) -> Iterator[Element]:
    """What people paste: every percent with its interval."""
    overview = forest(report)
    if overview is not None:
        narrow = f'<div class="narrow">{forest_svg(overview, is_narrow=True)}</div>'
        drawn = forest_svg(overview) + narrow
        figure = figures.place(drawn, f"{report.title}_every_percent")
        figure.classes.add("forest")
        yield figure


def _over_tables(
    report: Report, tables: Sequence[Table], figures: _PageCharts
) -> Iterator[Element]:
    by_size, by_depth = (
        [figures.figure(*chart) for chart in noted(report, tables, over)]
        for over in (size_charts, depth_charts)
    )
    yield from (E.DIV(E.CLASS("charts"), *drawn) for drawn in (by_size, by_depth) if drawn)
    if by_depth:
        paths = depth_paths(tables)
        lines = (f"{p.heading}, {p.label}: {in_words(p, c)}" for p in paths for c in p.curves)
        yield E.UL(*(E.LI(line) for line in lines))


def _load(report: Report, table: Table, figures: _PageCharts) -> Iterator[Element]:
    note = report.emulated_note(table)
    yield E.H3(table.title)
    yield page_tables.figures(report, table)
    yield from page_tables.bases(table)
    yield from page_tables.why(report, table)
    yield from page_tables.warnings(table)
    of_table, _ = figures.of_tables[table.title]
    drawn = (figures.figure(chart, table.title, note) for chart in of_table)
    yield E.DIV(E.CLASS("charts"), *drawn)
    yield from figures.flames(table, note)
    for grid in text_of.pair_grids(report, [table]).values():
        yield E.DETAILS(E.SUMMARY(grid.title), E.DIV(*page_tables.grid(report, grid)))
    yield page_tables.everything(report, table)


def _method(report: Report) -> Iterator[Element]:
    for text in (text_of.verdicts(report), *_METHOD):
        yield E.P(E.CLASS("note"), text)
    if report.notes:
        yield E.UL(E.CLASS("warnings"), *(E.LI(note) for note in report.notes))


_METHOD = (
    "A percentage with a * differs significantly. A configuration that was"
    " deployed once has only the range within its run, and no verdict. Error bars of charts are"
    " intervals of the percentage. A cell has no figures if its configuration is not proved or"
    " one of its fio processes failed.",
    "docs/figures.md of cbt-crypto defines each figure, docs/method.md each interval and verdict.",
)
