"""Upstream's modules, imported from a checkout. Their names are top-level and very general."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Optional

from cbt_crypto.errors import UsageError

#: Module and class of each of upstream's benchmarks that a campaign can name.
BENCHMARKS: Mapping[str, tuple[str, str]] = {
    "librbdfio": ("benchmark.librbdfio", "LibrbdFio"),
    "radosbench": ("benchmark.radosbench", "Radosbench"),
}


@dataclass(frozen=True)
class Modules:
    """What is used of a checkout."""

    path: Path
    settings: Any
    common: Any
    monitoring: Any
    Ceph: Any
    Benchmark: Any

    @property
    def perf_by_pid_files(self) -> bool:
        """Whether perf is started for each pid file, as it was before monitoring was a package."""
        return isinstance(self.monitoring, ModuleType)

    @property
    def divides_total_iodepth(self) -> bool:
        """Whether librbdfio knows the depth of all volumes together; older ones pass it over."""
        return hasattr(self.benchmark("librbdfio"), "_calculate_iodepth_per_volume")

    def benchmark(self, name: str) -> Any:
        """Upstream's own class of that benchmark."""
        module, kind = BENCHMARKS[name]
        return getattr(_imported(self.path, module), kind)


def load(path: Path) -> Modules:
    """Import them. Raises UsageError for a checkout that cannot be imported, saying why.

    One process can hold one checkout: its modules import each other by their top-level names.
    """
    if str(path) not in sys.path:
        sys.path.insert(0, str(path))
    # A checkout is not ours to write into, and that includes caches.
    sys.dont_write_bytecode = True
    return Modules(
        path=path,
        settings=_imported(path, "settings"),
        common=_imported(path, "common"),
        monitoring=_monitoring(path),
        Ceph=_imported(path, "cluster.ceph").Ceph,
        Benchmark=_imported(path, "benchmark.benchmark").Benchmark,
    )


def _monitoring(path: Path) -> Any:
    """What has `start`, `stop` and `monitor`: the module, or the factory of the later package."""
    if (path / "monitoring.py").is_file():
        return _imported(path, "monitoring")
    return _imported(path, "monitoring.monitoring_factory").MonitoringFactory


def missing_library(path: Path, name: str) -> Optional[str]:
    """A sentence when upstream's benchmark of that name cannot be imported."""
    try:
        _imported(path, BENCHMARKS[name][0])
    except UsageError as error:
        return f"benchmarks.{name}: {error}"
    return None


def _imported(path: Path, name: str) -> ModuleType:
    with warnings.catch_warnings():
        # Strings with backslashes that newer Pythons warn about, in files that are not ours.
        warnings.simplefilter("ignore")
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise UsageError(
                f"--cbt {path}: its module {name} needs {error.name}, which is not installed; "
                f"run {sys.executable} -m pip install -r {path}/requirements.txt {error.name}"
            ) from error
        except Exception as error:
            raise UsageError(
                f"--cbt {path}: its module {name} cannot be imported ({error!r}); does the "
                "checkout run with this Python?"
            ) from error
    location = Path(module.__file__ or "").resolve()
    if not location.is_relative_to(path.resolve()):
        raise UsageError(
            f"--cbt {path}: Python finds the module {name} in {location}; remove that from the path"
        )
    return module
