"""Proves, for every cell, that its configuration is in force: docs/overlays.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cbt_crypto.cluster_overlays.base import Overlay
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import HostOutputs, Site
from cbt_crypto.run.targets.drive_proof import DriveProof

_BEGIN = "@cbt-crypto-probe"

#: Overlay name -> what its probe printed, by host.
Probed = dict[str, HostOutputs]


def _overlays(stack: Stack, site: Site) -> Sequence[Overlay]:
    """What is to be proved of a cell: the stack, and of a drive what it is made of."""
    return (*stack.overlays, DriveProof()) if site.drives else stack.overlays


def _below(stack: Stack, overlay: Overlay, site: Site) -> Site:
    """The site as an overlay finds it; what is proved of a drive itself is seen from the top."""
    return stack.below(overlay, site) if overlay in stack.overlays else site


def probe(remote: Remote, stack: Stack, site: Site) -> Probed:
    """Run the probes of all overlays of a stack, in one call for all hosts."""
    scripts: dict[str, str] = {}
    for overlay in _overlays(stack, site):
        for host, text in overlay.probe(_below(stack, overlay, site)).items():
            part = shell.section(f"{_BEGIN} {overlay.name}", text)
            scripts[host] = scripts.get(host, "") + part
    outputs = remote.run(scripts, "read what proves the configuration", timeout=300)
    probed: dict[str, dict[str, str]] = {}
    for host, text in outputs.items():
        for line, printed in shell.sections(text, _BEGIN):
            probed.setdefault(line.removeprefix(_BEGIN).strip(), {})[host] = printed
    return dict(probed)


def judge(
    stack: Stack, site: Site, configuration: str, before: Probed, after: Probed
) -> dict[str, Any]:
    """The contents of proof.json for one cell, from probes taken before and after it."""
    verdicts = [
        _verdict(overlay, _below(stack, overlay, site), before, after)
        for overlay in _overlays(stack, site)
    ]
    return {
        "configuration": configuration,
        "proved": all(verdict["proved"] for verdict in verdicts),
        "overlays": verdicts,
    }


def is_waived(config: Mapping[str, Any]) -> bool:
    """Whether a `cluster` section says that nothing is to be proved."""
    return config.get("proof") == "none"


def waived(configuration: str) -> dict[str, Any]:
    """The same where the file says `proof: none`: every row of every table then says so."""
    return {"configuration": configuration, "proved": False, "required": False, "overlays": []}


def failure(proof: dict[str, Any]) -> str:
    """One sentence that says what is not proved."""
    reasons = [
        f"{verdict['overlay']}: {verdict['reason']}"
        for verdict in proof["overlays"]
        if not verdict["proved"]
    ]
    return f"the configuration is not proved: {'; '.join(reasons)}"


def _verdict(overlay: Overlay, site: Site, before: Probed, after: Probed) -> dict[str, Any]:
    name = overlay.name
    verdict = overlay.judge(site, before.get(name, {}), after.get(name, {}))
    return {
        "overlay": name,
        "present": overlay.is_present,
        "options": overlay.model_dump(mode="json"),
        "proved": verdict.proved,
        "reason": verdict.reason,
        "evidence": dict(verdict.evidence),
    }
