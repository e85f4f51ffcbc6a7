"""The table of `cbt-crypto check`: hosts by what they must offer, and how to mend what is red."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cbt_crypto.run.preflight.survey import Finding


def show(findings: Sequence[Finding], console: Console) -> None:
    """Print the table, then a line for each red field, then for each yellow one."""
    boundless = Console(file=console.file, width=10_000)
    wide = console if console.is_terminal else boundless
    table = _across(findings)
    fits = boundless.measure(table).maximum <= wide.width
    wide.print(table if fits else _down(findings))
    for style, name, told in (
        ("red", "error", [(one.host, one.error) for one in findings if one.error]),
        ("yellow", "warning", [(one.host, one.warning) for one in findings if one.warning]),
    ):
        for host, sentence in dict.fromkeys(told):
            line = Text.assemble((f"{name}: ", style), f"{host}: {sentence}")
            console.print(line, soft_wrap=True)


def _across(findings: Sequence[Finding]) -> Table:
    """A row a host, a column for each thing that is looked at."""
    columns = list(dict.fromkeys(one.column for one in findings))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("host", *columns):
        table.add_column(Text(column), no_wrap=True)
    for host, own in _by_host(findings).items():
        table.add_row(Text(host), *(_field(own, column) for column in columns))
    return table


def _down(findings: Sequence[Finding]) -> Table:
    """The same where the columns would be cut: beside each host, what was found of it, wrapped."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for host, own in _by_host(findings).items():
        fields = []
        for column in dict.fromkeys(one.column for one in own):
            fields.append(Text.assemble((f"{column}\u00a0", "dim"), _unbroken(_field(own, column))))
        table.add_row(Text(host, style="bold"), Text("  ").join(fields))
    return table


def _unbroken(field: Text) -> Text:
    return Text(field.plain.replace(" ", "\u00a0"), style=field.style)


def _by_host(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for one in findings:
        found.setdefault(one.host, []).append(one)
    return found


def _field(own: Sequence[Finding], column: str) -> Text:
    here = [one for one in own if one.column == column]
    shown = [one.shown for one in here if one.shown not in ("", "ok")]
    text = " ".join(dict.fromkeys(shown)) or ("ok" if here else "")
    if any(one.error for one in here):
        return Text(text if "no" in shown else f"{text} no", style="bold red")
    if any(one.warning for one in here):
        return Text(f"{text} !", style="yellow")
    return Text(text, style="green" if text == "ok" else "")
