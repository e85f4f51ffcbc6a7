"""Loading what the report is made with, while a cluster is deployed and nothing is measured."""

from __future__ import annotations

import contextlib
import importlib
import threading


def load_in_background() -> None:
    """Start importing what takes seconds; who needs it sooner waits, as for any import."""
    threading.Thread(target=_load, daemon=True).start()


def _load() -> None:
    # What is missing is told by the report itself, when it is made.
    with contextlib.suppress(ImportError):
        for name in ("cbt_crypto.report", "arch.bootstrap", "matplotlib.figure"):
            importlib.import_module(name)
