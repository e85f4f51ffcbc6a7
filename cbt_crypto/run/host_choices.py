"""Options that hosts decide: asked once a campaign, and kept, so all its cells have the same."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cbt_crypto.archive.files import digest, read_json, write_json
from cbt_crypto.cluster_overlays.base import Overlay
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Site

_LIMIT_S = 600


class Choices:
    """What hosts answered in this campaign: `results/choices.json`, by the scripts that asked."""

    def __init__(self, archive: Path, remote: Remote, site: Site) -> None:
        """`site` has all OSDs and drives of the campaign."""
        self._path = archive / "results" / "choices.json"
        self._remote = remote
        self._site = site

    def decided(self, overlays: Iterable[Overlay]) -> tuple[Overlay, ...]:
        """The overlays with every option decided. Raises RunError where that cannot be done."""
        return tuple(self._decided(overlay) for overlay in overlays)

    def _decided(self, overlay: Overlay) -> Overlay:
        scripts = overlay.ask(self._site)
        return overlay.decided(self._answers(overlay.name, scripts)) if scripts else overlay

    def _answers(self, name: str, scripts: HostScripts) -> HostOutputs:
        noted = read_json(self._path) or {}
        noted.pop("format", None)
        key = f"{name} {digest(dict(scripts))[:16]}"
        if key not in noted:
            what = f"ask the hosts for {name}"
            noted[key] = self._remote.run(scripts, what, _LIMIT_S)
            write_json(self._path, noted)
        answers: dict[str, str] = noted[key]
        return answers
