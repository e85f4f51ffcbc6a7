"""The engine: what executes, deploys and monitors, under CBT's names, as a checkout would."""

from cbt_crypto.engine.contract import CellBenchmark, Engine

__all__ = ["CellBenchmark", "Engine"]
