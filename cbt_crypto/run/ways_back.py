"""What hosts need to become again what they were: kept beside the user's own state of a run.

On the hosts it stands in `tmp_dir`, which a power cut may take where that is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cbt_crypto.cluster_overlays.base import Overlay
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.hosts import directories
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.shell import joined
from cbt_crypto.hosts.site import Site
from cbt_crypto.plan.file import Campaign

#: Overlay -> host -> what it printed.
ByOverlay = Mapping[str, Mapping[str, str]]
_LIMIT_S = 120


def ask(remote: Remote, site: Site, campaign: Campaign) -> ByOverlay:
    """What each overlay's hosts are now, before anything is changed. Raises HostError."""
    by_overlay: dict[str, dict[str, str]] = {}
    for overlay in _overlays(campaign):
        scripts = overlay.way_back(site)
        if scripts:
            outputs = remote.run(scripts, f"note what {overlay.name} will change", _LIMIT_S)
            by_overlay.setdefault(overlay.name, {}).update(outputs)
    return by_overlay


def put_back(remote: Any, site: Site, campaign: Campaign, by_overlay: Any) -> Iterator[str]:
    """Give it back to hosts that lost it; yields what nobody knows any more, host by host."""
    scripts = joined(o.put_back(site, _of(by_overlay, o.name)) for o in _overlays(campaign))
    made = {host: directories.make(site.tmp_dir) + text for host, text in scripts.items()}
    for host, printed in remote.run(made, "look for the way back", _LIMIT_S).items():
        yield from (f"{host}: {line}" for line in printed.splitlines() if line.strip())


def _of(by_overlay: Any, name: str) -> dict[str, str]:
    by_host = by_overlay.get(name) if isinstance(by_overlay, Mapping) else None
    items = by_host.items() if isinstance(by_host, Mapping) else ()
    return {host: text for host, text in items if isinstance(text, str)}


def _overlays(campaign: Campaign) -> list[Overlay]:
    """Every overlay of every configuration, each with its options once."""
    overlays: list[Overlay] = []
    for named in campaign.configurations.values():
        overlays += [overlay for overlay in Stack(named).named if overlay not in overlays]
    return overlays
