"""What a process or a drive really lies on, as its host tells it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Optional

from cbt_crypto.hosts import shell
from cbt_crypto.hosts.devices import storage_on_host

#: What `storage_on_host` found at one OSD.
Facts = Mapping[str, Any]


def facts_script(asked: Mapping[str, Mapping[str, Any]]) -> str:
    """Shell text that runs `storage_on_host` with these arguments."""
    return shell.python(shell.program(storage_on_host), asked)


def parse(outputs: Iterable[str]) -> dict[str, Facts]:
    """Name -> facts, of all that were asked for; an output that is something else has none."""
    facts: dict[str, Facts] = {}
    for output in outputs:
        with contextlib.suppress(ValueError, TypeError):
            facts.update(json.loads(output))
    return facts


def closed_fault(facts: Optional[Facts]) -> Optional[str]:
    """Why there is nothing to judge."""
    if not facts:
        return "its host did not say what it has open"
    if not facts["running"]:
        return "it is not running"
    return None if facts["opened"] else "it has no device open"
