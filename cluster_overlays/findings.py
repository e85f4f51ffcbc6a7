"""From what was found at each OSD, or drive, to one verdict on all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, TypeVar, Union

from cbt_crypto.cluster_overlays.base import Overlay, Verdict
from cbt_crypto.hosts.site import Drive, Osd


@dataclass(frozen=True)
class Finding:
    """What is wrong at an OSD or drive, a clause without a full stop, or None; what shows it."""

    fault: Optional[str]
    evidence: Mapping[str, Any] = field(default_factory=dict)


#: What carries data: an OSD, or a drive.
CarrierT = TypeVar("CarrierT", bound=Union[Osd, Drive])


def name_of(carrier: Union[Osd, Drive]) -> str:
    """`osd.3`, or `drive NVMe`."""
    return f"osd.{carrier.id}" if isinstance(carrier, Osd) else f"drive {carrier.name}"


def judge_all(overlay: Overlay, findings: Mapping[CarrierT, Finding], claim: str) -> Verdict:
    """Proved when no OSD has a fault. `claim` completes the sentence "4 of 4 OSDs ...".

    A cell on drives has drives in place of OSDs. On a cluster that the campaign did not deploy
    there are no OSDs to look at: that proves no overlay, and contradicts the absence of none.
    """
    if not findings:
        return Verdict(not overlay.is_present, "the campaign deploys no OSD to look at")
    faults = [
        f"{name_of(carrier)} on {carrier.host}: {finding.fault}"
        for carrier, finding in findings.items()
        if finding.fault
    ]
    kind = "OSDs" if all(isinstance(carrier, Osd) for carrier in findings) else "drives"
    reason = f"{len(findings) - len(faults)} of {len(findings)} {kind} {claim}"
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        reason = f"{reason}; {faults[0]}{more}"
    evidence = {name_of(carrier): dict(finding.evidence) for carrier, finding in findings.items()}
    return Verdict(not faults, reason, evidence)
