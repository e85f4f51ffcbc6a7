"""What a person sees of a campaign from elsewhere, or after the terminal was lost."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Optional

from rich.console import Console
from rich.live import Live
from rich.text import Text

from cbt_crypto.archive.files import printable, read_json
from cbt_crypto.archive.folder import open_archive
from cbt_crypto.engine.contract import LiveFigures
from cbt_crypto.plan.predict import Left
from cbt_crypto.run.detached.running import running

#: Seconds since the epoch will be fewer for three thousand years.
_MOST_S = 1e11
_REFRESH_S = 1.0


def watch(archive: Path, console: Console) -> None:
    """Show where the campaign is and its tables so far, until it ends.

    Not on a terminal: once. Raises UsageError for no archive. Changes nothing.
    """
    open_archive(archive)
    seen: Any = ...
    if not console.is_terminal:
        _tables(archive, console)
        console.print(status(archive), soft_wrap=True)
        return
    with Live(console=console, auto_refresh=False) as live:
        while True:
            now = changed(archive)
            if now != seen:
                seen = now
                live.update(Text(""), refresh=True)
                _tables(archive, console)
            live.update(status(archive), refresh=True)
            if running(archive) is None:
                return
            time.sleep(_REFRESH_S)


def changed(archive: Path) -> Optional[int]:
    """Something that is another when a cell has ended; None before the first."""
    try:
        return (archive / "results" / "timeline.json").stat().st_mtime_ns
    except OSError:
        return None


def status(archive: Path) -> Text:
    """One line: the cell, its phase, the time left; or that it ended, and how."""
    state = read_json(archive / "results" / "progress.json") or {}
    phase = printable(str(state.get("phase", ""))).replace("\n", " ")
    is_running = running(archive) is not None
    now = time.time()
    since = max(0.0, now - (_number(state, "at") or now))
    if not is_running:
        return Text(_ended(archive, state, phase), "yellow")
    position = f"{_shown(state, 'cell')}/{_shown(state, 'cells')}"
    # The time left is of when it was written, the phase's age of when that began.
    written = max(0.0, now - (_number(state, "written") or _number(state, "at") or now))
    # A cell's own phase says where it stands.
    phase = phase.removeprefix(f"cell {position}: ")
    words = [position, phase, f"for {round(since)} s", _left(state, written), _live(state)]
    return Text("  ".join(word for word in words if word), "cyan")


def _ended(archive: Path, state: dict[str, Any], phase: str) -> str:
    if not state:
        return "no campaign is seen to run into it on this machine"
    if state.get("ended"):
        return f"{phase}; cell {_shown(state, 'cell')} of {_shown(state, 'cells')}"
    return (
        f"it was killed at: {phase}; the command that started it goes on, and "
        f"cbt-crypto cleanup {archive} takes down what it left"
    )


def _left(state: dict[str, Any], since: float) -> str:
    seconds, uncertainty = _number(state, "seconds_left"), _number(state, "uncertainty_s")
    if seconds is None or uncertainty is None:
        return ""
    return str(Left(max(0.0, seconds - since), uncertainty))


def _live(state: dict[str, Any]) -> str:
    """What the clients of this cell do; nothing in other phases."""
    iops, latency_s = _number(state, "iops"), _number(state, "latency_s")
    return "" if iops is None else f"now {LiveFigures(iops, latency_s)}"


def _number(state: dict[str, Any], key: str) -> Optional[float]:
    """A number that a time can be: none of what somebody else may have written there."""
    value = state.get(key)
    return value if isinstance(value, (int, float)) and abs(value) < _MOST_S else None


def _shown(state: dict[str, Any], key: str) -> str:
    """On a terminal, which acts on escape sequences."""
    return printable(str(state.get(key)))[:20]


def _tables(archive: Path, console: Console) -> None:
    # A node that only measures need not have the libraries of the report.
    try:
        from cbt_crypto import report  # noqa: PLC0415
    except ImportError:
        return
    report.show(report.build(archive), report.widened(console))
