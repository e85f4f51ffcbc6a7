"""What sets drives apart in charts that compare them: their power-loss protection and model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cbt_crypto.archive.documents import Environment

_PLP = {
    True: "with power-loss protection",
    False: "without power-loss protection",
    None: "power-loss protection not stated",
}


def groups(environment: Environment | None, dimension: str) -> Mapping[str, str]:
    """Drive -> its group; empty unless drives are compared and the archive describes them."""
    drives: Any = getattr(environment, "drives", None)
    if dimension != "drive" or not isinstance(drives, Mapping):
        return {}
    facts = {str(name): about for name, about in drives.items() if isinstance(about, Mapping)}
    return {name: _group(about) for name, about in facts.items()}


def _group(about: Mapping[str, Any]) -> str:
    plp = about.get("plp")
    return _PLP[plp if isinstance(plp, bool) else None]
