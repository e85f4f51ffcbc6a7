"""From what was found at each OSD to one verdict on all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from cbt_crypto.overlay import Overlay, Verdict
from cbt_crypto.site import Osd


@dataclass(frozen=True)
class Finding:
    """What is wrong at one OSD, a clause without a full stop, or None; and what shows it."""

    fault: Optional[str]
    evidence: Mapping[str, Any] = field(default_factory=dict)


def judge_all(overlay: Overlay, findings: Mapping[Osd, Finding], claim: str) -> Verdict:
    """Proved when no OSD has a fault. `claim` completes the sentence "4 of 4 OSDs ...".

    On a cluster that the campaign did not deploy there are no OSDs to look at: that proves no
    overlay, and contradicts the absence of none.
    """
    if not findings:
        return Verdict(not overlay.is_present, "the campaign deploys no OSD to look at")
    faults = [
        f"osd.{osd.id} on {osd.host}: {finding.fault}"
        for osd, finding in findings.items()
        if finding.fault
    ]
    reason = f"{len(findings) - len(faults)} of {len(findings)} OSDs {claim}"
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        reason = f"{reason}; {faults[0]}{more}"
    evidence = {f"osd.{osd.id}": dict(finding.evidence) for osd, finding in findings.items()}
    return Verdict(not faults, reason, evidence)
