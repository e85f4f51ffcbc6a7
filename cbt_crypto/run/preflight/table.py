"""The table of `cbt-crypto check`: hosts by what they must offer, and how to mend what is red."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cbt_crypto.run.preflight.survey import HostFinding


def show(findings: Sequence[HostFinding], console: Console) -> None:
    """Print the table, then a line for each red field, then for each yellow one."""
    boundless = Console(file=console.file, width=10_000)
    wide = console if console.is_terminal else boundless
    table = _across(findings)
    fits = boundless.measure(table).maximum <= wide.width
    wide.print(table if fits else _down(findings))
    for style, name, sentences in (
        ("red", "error", [(f.host, f.error) for f in findings if f.error]),
        ("yellow", "warning", [(f.host, f.warning) for f in findings if f.warning]),
    ):
        for host, sentence in dict.fromkeys(sentences):
            line = Text.assemble((f"{name}: ", style), f"{host}: {sentence}")
            console.print(line, soft_wrap=True)


def _across(findings: Sequence[HostFinding]) -> Table:
    """A row a host, a column for each thing that is looked at."""
    columns = list(dict.fromkeys(finding.column for finding in findings))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("host", *columns):
        table.add_column(Text(column), no_wrap=True)
    for host, of_host in _by_host(findings).items():
        table.add_row(Text(host), *(_field(of_host, column) for column in columns))
    return table


def _down(findings: Sequence[HostFinding]) -> Table:
    """The same where the columns would be cut: beside each host, what was found of it, wrapped."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for host, of_host in _by_host(findings).items():
        fields = []
        for column in dict.fromkeys(finding.column for finding in of_host):
            fields.append(
                Text.assemble((f"{column}\u00a0", "dim"), _unbroken(_field(of_host, column)))
            )
        table.add_row(Text(host, style="bold"), Text("  ").join(fields))
    return table


def _unbroken(field: Text) -> Text:
    return Text(field.plain.replace(" ", "\u00a0"), style=field.style)


def _by_host(findings: Sequence[HostFinding]) -> dict[str, list[HostFinding]]:
    by_host: dict[str, list[HostFinding]] = {}
    for finding in findings:
        by_host.setdefault(finding.host, []).append(finding)
    return by_host


def _field(findings: Sequence[HostFinding], column: str) -> Text:
    here = [finding for finding in findings if finding.column == column]
    shown = [finding.shown for finding in here if finding.shown not in ("", "ok")]
    text = " ".join(dict.fromkeys(shown)) or ("ok" if here else "")
    if any(finding.error for finding in here):
        return Text(text if "no" in shown else f"{text} no", style="bold red")
    if any(finding.warning for finding in here):
        return Text(f"{text} !", style="yellow")
    return Text(text, style="green" if text == "ok" else "")
