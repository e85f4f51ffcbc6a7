"""`cbt-crypto gate`: whether a change loses more than it may, for CI."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Optional

import click

from cbt_crypto.errors import UsageError


def _percent(ctx: click.Context, option: click.Parameter, value: Any) -> float:
    """Of `5%` or `5`, from 0 to below 100."""
    try:
        number = float(str(value).removesuffix("%"))
    except ValueError:
        number = -1.0
    if not 0 <= number < 100:
        raise click.BadParameter(f"{value!r} is no percent; write, for example, 5%")
    return number


@click.command()
@click.argument("archive", type=click.Path(path_type=Path))
@click.option(
    "--loss",
    "may_lose",
    callback=_percent,
    required=True,
    metavar="PERCENT",
    help="What may be lost of the baseline's figure, such as 5%.",
)
@click.option("--baseline", metavar="NAME", help="As of `report`. Default: the campaign's.")
@click.option("--only", multiple=True, metavar="PATTERN", help="Only such cells, as of `report`.")
@click.option(
    "--metric",
    "key",
    default="iops",
    show_default=True,
    metavar="KEY",
    help="The figure that counts, by its key in report.json, e.g. clat_ns_p99.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the answers to FILE as JSON.",
)
@click.option(
    "--junit",
    "junit_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write them as JUnit's XML: yes is a failure, cannot tell is skipped.",
)
def gate(
    archive: Path, may_lose: float, baseline: Optional[str], only: tuple[str, ...], key: str,
    json_file: Optional[Path], junit_file: Optional[Path],
) -> None:  # fmt: skip
    """Tell whether any load of ARCHIVE loses more than --loss; for CI.

    Exit status: 0 for no, 1 for yes, 3 when it cannot be told; 2 when the question is wrong. One
    line a load, and --json and --junit write the same to files. What decides is what the report's
    verdicts rest on: its 95 % intervals of four rounds or more, or of six pairs of turns. Fewer
    have no answer but 3.
    """
    from cbt_crypto.report import ReportOptions, build, gate  # noqa: PLC0415
    from cbt_crypto.report.figures.metric import BY_KEY  # noqa: PLC0415

    metric = BY_KEY.get(key)
    if metric is None or not metric.better:
        known = ", ".join(name for name, metric in BY_KEY.items() if metric.better)
        raise UsageError(f"--metric {key}: is none of those that can lose; name one of {known}")
    built = build(archive, ReportOptions(baseline=baseline, only=only))
    findings = gate.findings(built, metric, may_lose)
    for line in (finding.line for finding in findings):
        click.echo(line)
    answer = gate.overall(findings)
    click.echo(f"more than {may_lose:g} % lost against {built.baseline_name}: {answer.value}")
    for option, path, text in (
        ("--json", json_file, gate.as_json(findings, metric, may_lose)),
        ("--junit", junit_file, gate.as_junit(findings, built.title)),
    ):
        if path is not None:
            _write(option, path, text)
    sys.exit(gate.EXIT_STATUS[answer])


def _write(option: str, path: Path, text: str) -> None:
    """Raises UsageError: a traceback's exit status, 1, would tell CI that too much is lost."""
    from cbt_crypto.report.files import write_whole  # noqa: PLC0415

    try:
        if path.exists() and not path.is_file():
            _write_to_pipe(path, text)
        else:
            # Nobody's file is written to that a link in this place leads to.
            write_whole(path, text)
    except OSError as error:
        raise UsageError(
            f"{option} {path}: cannot be written ({error.strerror}); name another file"
        ) from None


def _write_to_pipe(path: Path, text: str) -> None:
    """Or to a device. One that nobody reads is an error, and nothing to wait for."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
