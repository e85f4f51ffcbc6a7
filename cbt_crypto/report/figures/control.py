"""The control: the baseline measured a second time, as the campaign's own test of itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Optional

from cbt_crypto.archive.documents import Baseline, PlanDocument
from cbt_crypto.report.model import Table

#: The name under which a campaign measures its baseline a second time.
CONTROL = "control"


def control_of(plan: PlanDocument, baseline: Baseline) -> Optional[str]:
    """The name of the control, where the baseline that it repeats is the one compared with."""
    planned = plan.baseline
    compared_with = planned is None or planned == baseline
    measured = any(cell.configuration == CONTROL for cell in plan.cells)
    alike = str(baseline.value) in plan.configurations and (
        plan.configurations.get(CONTROL) == plan.configurations[str(baseline.value)]
    )
    return CONTROL if measured and alike and compared_with else None


def control_sentences(tables: Iterable[Table], control: str) -> Iterator[str]:
    """One for each load under which the control is shown to differ from what it repeats."""
    for table in tables:
        for section in table.sections:
            for cell in section.cells:
                iops = cell.comparisons.get("iops")
                if cell.name == control and iops is not None and iops.differs:
                    yield (
                        f"The control differs from the baseline that it repeats: {table.title}, "
                        f"{section.label}: {iops.percent:.1f} % ({iops.low:.1f} to "
                        f"{iops.high:.1f}). Other differences of this report are not to be "
                        "trusted either."
                    )
