"""The engine: what remotely executes, deploys and monitors, under CBT's own names.

The rest of the library uses these names only, so that an upstream CBT checkout can stand in.
"""

from cbt_crypto.engine.contract import CellBenchmark, Engine

__all__ = ["CellBenchmark", "Engine"]
