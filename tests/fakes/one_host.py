"""A cluster section in which one host has every role."""

from __future__ import annotations

from typing import Any

#: As all hosts are this machine, more of them would share their files.
ONE: dict[str, Any] = {
    "head": "c0",
    "clients": ["c0"],
    "osds": ["c0"],
    "mons": {"head": ..., "c0": {"a": "10.0.0.1"}},
    "mgrs": {"head": ..., "c0": {"x": None}},
}
