"""`benchmark.Benchmark`: where a cell's files go, here and on the nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.contract

Make = Callable[..., Any]
CONFIG = {"mode": "randread", "op_size": 4096, "iteration": 3}


@pytest.fixture
def benchmark(own_bench: Make) -> Any:
    made = own_bench()
    config = {"head": "head", "archive_dir": str(made.archive)}
    cluster = SimpleNamespace(tmp_dir=str(made.tmp_dir), config=config)
    return made.engine.Benchmark(str(made.archive), cluster, CONFIG)


def test_cbt_s_names_of_directories(benchmark: Any) -> None:
    text = str(sorted(CONFIG.items())).encode()
    name = f"results/00000003/id-{hashlib.sha1(text).hexdigest()[:16]}"
    assert benchmark.archive_dir.endswith(f"/archive/{name}")
    assert benchmark.run_dir.startswith(f"{benchmark.cluster.tmp_dir}/")
    assert benchmark.run_dir.endswith(name)


def test_its_attributes(benchmark: Any) -> None:
    assert benchmark.config == CONFIG
    assert benchmark.cluster.config["head"] == "head"


def test_a_life(benchmark: Any) -> None:
    assert not benchmark.exists()
    benchmark.initialize()
    assert benchmark.exists()
    noted = yaml.safe_load((Path(benchmark.archive_dir) / "benchmark_config.yaml").read_text())
    assert noted["mode"] == "randread"
    assert noted["cluster"] == {"head": "head"}
    run_dir = Path(benchmark.run_dir)
    (run_dir / "left over").touch()
    benchmark.run()
    assert list(run_dir.iterdir()) == [], "a run starts with an empty directory"
    benchmark.cleanup()
    assert not run_dir.exists()
    assert benchmark.exists(), "the archive is kept"
