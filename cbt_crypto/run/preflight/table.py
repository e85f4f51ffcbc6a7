"""The table of `cbt-crypto check`: hosts by what they must offer, and how to mend what is red."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cbt_crypto.run.preflight.survey import Finding


def show(findings: Sequence[Finding], console: Console) -> None:
    """Print the table, then a line for each red field, then for each yellow one."""
    columns = list(dict.fromkeys(one.column for one in findings))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("host", *columns):
        table.add_column(Text(column), no_wrap=True)
    for host in dict.fromkeys(one.host for one in findings):
        own = [one for one in findings if one.host == host]
        table.add_row(Text(host), *(_field(own, column) for column in columns))
    wide = Console(file=console.file, width=10_000) if not console.is_terminal else console
    wide.print(table)
    for style, name, told in (
        ("red", "error", [(one.host, one.error) for one in findings if one.error]),
        ("yellow", "warning", [(one.host, one.warning) for one in findings if one.warning]),
    ):
        for host, sentence in dict.fromkeys(told):
            line = Text.assemble((f"{name}: ", style), f"{host}: {sentence}")
            console.print(line, soft_wrap=True)


def _field(own: Sequence[Finding], column: str) -> Text:
    here = [one for one in own if one.column == column]
    shown = [one.shown for one in here if one.shown not in ("", "ok")]
    text = " ".join(dict.fromkeys(shown)) or ("ok" if here else "")
    if any(one.error for one in here):
        return Text(text if "no" in shown else f"{text} no", style="bold red")
    if any(one.warning for one in here):
        return Text(f"{text} !", style="yellow")
    return Text(text, style="green" if text == "ok" else "")
