"""How wide the printed tables may be."""

from __future__ import annotations

from rich.console import Console

#: Columns in which no heading of a table is cut.
_WIDTH = 120


def widened(console: Console) -> Console:
    """The console; written to a file or a pipe, its tables need not fit into 80 columns."""
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH)
    return console
