"""Prints, as JSON, which names of the contract an engine lacks, or cannot be called as it says.

Arguments: the contract as JSON, and the folder of an upstream checkout, or "" for the embedded
engine. It runs in a process of its own: a checkout's modules have top-level names.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from typing import Any, Optional

EMBEDDED = {
    "settings": "cbt_crypto.engine.embedded.settings",
    "common": "cbt_crypto.engine.embedded.common",
    "monitoring": "cbt_crypto.engine.embedded.monitoring",
    "cluster.ceph": "cbt_crypto.engine.embedded.ceph",
    "benchmark.benchmark": "cbt_crypto.engine.embedded.common",
}


def fault_of(module: str, path: str, arguments: Optional[list[str]]) -> Optional[str]:
    """What is wrong with one name, or None. `K({}).name` is of an object that `K` makes.

    Without arguments it is only there.
    """
    try:
        found: Any = _module(module)
    except ImportError as error:
        return f"cannot be imported: {error}"
    for part in path.split("."):
        name = part.removesuffix("({})")
        if not hasattr(found, name):
            return "is not there"
        owner, found = found, getattr(found, name)
        found = found if name == part else found({})
    if arguments is None:
        return None
    is_bound = inspect.ismodule(owner) or inspect.isclass(found) or inspect.ismethod(found)
    method = [] if is_bound else ["self"]
    try:
        inspect.signature(found).bind(*method, *arguments)
    except TypeError as error:
        return f"cannot be called with ({', '.join(arguments)}): {error}"
    return None


def _module(name: str) -> Any:
    """A module of an engine; for monitoring, where that is a package, what its modules became."""
    found = importlib.import_module(name)
    if name == "monitoring" and hasattr(found, "__path__"):
        return importlib.import_module("monitoring.monitoring_factory").MonitoringFactory
    return found


def main() -> None:
    contract, checkout = json.loads(sys.argv[1]), sys.argv[2]
    if checkout:
        sys.dont_write_bytecode = True
        sys.path.insert(0, checkout)
    faults = {}
    for module, names in contract.items():
        for path, arguments in names.items():
            fault = fault_of(module if checkout else EMBEDDED[module], path, arguments)
            if fault:
                faults[f"{module}.{path}"] = fault
    print(json.dumps(faults))


if __name__ == "__main__":
    main()
