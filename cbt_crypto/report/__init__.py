"""The report stage: from an archive to tables, files and charts, on any machine, any time."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.report.build import build
from cbt_crypto.report.files import write
from cbt_crypto.report.model import Report, ReportOptions
from cbt_crypto.report.terminal import show, widened

__all__ = ["Report", "ReportOptions", "build", "publish", "show", "widened", "write"]


def publish(archive: Path, console: Console, only: Sequence[str] = ()) -> None:
    """Write every file of the report into the archive, print the tables, and say where it is.

    `only`, patterns of labels, limits what is printed. RunError when files cannot be written.
    """
    built = build(archive, ReportOptions())
    try:
        paths = write(built, archive)
    except UsageError as error:
        raise RunError(str(error)) from None
    printed = build(archive, ReportOptions(only=tuple(only))) if only else built
    show(printed, widened(console))
    page = next(path for path in paths if path.name == "report.html")
    console.print(Text(f"\nReport: {page.resolve()}"), soft_wrap=True)
