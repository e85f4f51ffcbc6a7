"""Prints a plan: what would run, in which order, and how long the file itself makes it."""

from __future__ import annotations

import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cbt_crypto.overlay import Overlay, Transition
from cbt_crypto.plan import Deploy, Measure, Plan, Prefill, Step


def show_plan(plan: Plan, console: Console) -> None:
    """Print configurations with their overlays, the steps in order, and a summary."""
    _configurations(plan, console)
    table = Table(title="Steps", title_justify="left", box=None, pad_edge=False)
    for column in ("", "step", "what", "takes"):
        table.add_column(column, overflow="fold")
    for number, step in enumerate(plan.steps, 1):
        table.add_row(str(number), *map(Text, _row(step)))
    console.print(table)
    console.print()
    console.print(_summary(plan), highlight=False, soft_wrap=True)


def _configurations(plan: Plan, console: Console) -> None:
    table = Table(title="Configurations", title_justify="left", box=None, pad_edge=False)
    table.add_column("name")
    table.add_column("overlays", overflow="fold")
    for name, overlays in plan.campaign.configurations.items():
        shown = "; ".join(f"{overlay.name}{_options(overlay)}" for overlay in overlays) or "none"
        mark = "  (baseline)" if _is_baseline(plan, name) else ""
        table.add_row(Text(f"{name}{mark}"), Text(shown))
    console.print(table)
    console.print()


def _is_baseline(plan: Plan, name: str) -> bool:
    return plan.campaign.compared == "configuration" and name == plan.campaign.baseline


def _options(overlay: Overlay) -> str:
    words = [f"{key}={getattr(overlay, key)}" for key in sorted(overlay.model_fields_set)]
    return f" ({', '.join(words)})" if words else ""


def _row(step: Step) -> tuple[str, str, str]:
    if isinstance(step, Deploy):
        return step.how.name.lower(), f"{step.configuration}  ({step.reason})", ""
    if isinstance(step, Prefill):
        size = sum(volume.size_mb for volume in step.volumes)
        return "prefill", f"{len(step.volumes)} volumes for {step.scenario.name}", f"{size} MiB"
    seconds = step.cell.scenario.ramp + step.cell.scenario.time
    return "measure", f"{step.cell.label}  [{step.cell.id}]", f"{seconds} s"


def _summary(plan: Plan) -> str:
    measured = datetime.timedelta(seconds=plan.seconds)
    cells = sum(isinstance(step, Measure) for step in plan.steps)
    kept = len(plan.cells) - cells
    kinds = [
        f"{count} {name}"
        for how, name in (
            (Transition.REBUILD, "rebuilds"),
            (Transition.RESTART, "restarts"),
            (Transition.LIVE, "live changes"),
        )
        if (count := plan.deployments(how))
    ]
    return (
        f"{cells} cells to measure{f', {kept} not' if kept else ''}; "
        f"{', '.join(kinds) or 'nothing to deploy'}; prefill of {plan.prefill_mb / 1024:.1f} GiB. "
        f"Measuring takes {measured} by the file's own times; deployments and prefill come on top."
    )
