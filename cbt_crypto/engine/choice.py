"""Which engine runs the campaign: an upstream CBT checkout that was named, or our own."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from cbt_crypto.engine.names import Engine, embedded
from cbt_crypto.errors import UsageError


def choose(checkout: Optional[Path]) -> Engine:
    """The engine for `--cbt DIR`, or the embedded one for None.

    Raises UsageError when a checkout is named: this version has no driver for one yet.
    """
    if checkout is not None:
        raise UsageError(
            f"--cbt {checkout}: this version runs campaigns on its embedded engine only; "
            "leave --cbt out"
        )
    return embedded()
