"""What is wrong with the cells of a table: each sentence once, with the cells that it is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cbt_crypto.report.model import ReportCell, Table


@dataclass(frozen=True)
class Note:
    """One sentence. `where` names the cells that it is of: `LUKS, random reads`."""

    number: int
    text: str
    where: str


def notes_of(table: Table) -> list[Note]:
    """Why cells failed and what is doubtful about others, in the order of the cells."""
    sections_by_text: dict[str, dict[str, list[str]]] = {}
    for section in table.sections:
        for cell in section.cells:
            for text in sentences(cell):
                sections_by_text.setdefault(text, {}).setdefault(section.label, []).append(
                    cell.name
                )
    return [
        Note(n, text, _where(modes)) for n, (text, modes) in enumerate(sections_by_text.items(), 1)
    ]


def sentences(cell: ReportCell) -> tuple[str, ...]:
    """All that is to be said of one cell."""
    return (*([cell.reason] if cell.reason else []), *cell.warnings)


def numbers(cell: ReportCell, notes: Sequence[Note]) -> list[int]:
    """Which of its table's notes are of this cell."""
    texts = set(sentences(cell))
    return [note.number for note in notes if note.text in texts]


def _where(modes: Mapping[str, Sequence[str]]) -> str:
    """Cells by mode; modes with the same cells together."""
    same: dict[tuple[str, ...], list[str]] = {}
    for mode, names in modes.items():
        same.setdefault(tuple(names), []).append(mode)
    return "; ".join(
        f"{', '.join(map(_quoted, names))}, {' and '.join(m)}" for names, m in same.items()
    )


def _quoted(name: str) -> str:
    """A name that would read as several is quoted."""
    return f'"{name}"' if "," in name else name
