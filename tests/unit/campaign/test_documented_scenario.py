"""The scenario of docs/write-a-scenario.md, taken from there and run."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cbt_crypto.benchmarks import SCENARIOS
from cbt_crypto.benchmarks.base import ClusterCommands, Scenario
from cbt_crypto.hosts.site import Site

pytestmark = pytest.mark.unit

TEXT = (Path(__file__).parents[3] / "docs" / "write-a-scenario.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    return str(found)


@pytest.fixture
def documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Scenario]:
    path = tmp_path / "rbd_shared_volume.py"
    path.write_text(block("python"))
    spec = importlib.util.spec_from_file_location("rbd_shared_volume", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "rbd_shared_volume", module)
    spec.loader.exec_module(module)
    kind: type[Scenario] = module.RbdSharedVolume
    monkeypatch.setitem(SCENARIOS, kind.name, kind)
    return kind


def test_it_runs(host: Any, no_overlays: None, documented: type[Scenario]) -> None:
    section = yaml.safe_load(block("yaml"))["benchmarks"]
    path = host.write(benchmarks={"rbd_single_client": ..., **section})
    result = host.cbt(path)
    assert result.exit_code == 0, result.output
    plan = json.loads((host.archive / "results" / "plan.json").read_text())
    assert [cell["parameters"]["op_size"] for cell in plan["cells"]] == [4096, 65536]
    for cell in plan["cells"]:
        kept = json.loads((host.archive / cell["path"] / "cell.json").read_text())
        assert (kept["state"], kept["processes"][0]["exit_status"]) == ("finished", 0)
    assert "prefill 1 volume, 1024 MiB" in result.output


def test_all_clients_work_on_one_volume(documented: type[Scenario]) -> None:
    site = Site("/t", "/c", "head", ("c0", "c1", "c2"), ())
    scenario = documented(configuration="A")
    commands = ClusterCommands("ceph", "rbd", "env")
    scripts = scenario.measure(site, "/r", commands, lambda host, command: command)
    assert list(scripts) == [process.host for process in scenario.processes(site)]
    assert len(set(scripts.values())) == 1


def test_every_hook_is_described() -> None:
    hooks = {
        name
        for name, value in vars(Scenario).items()
        if callable(value) and not name.startswith(("_", "model_"))
    }
    assert hooks == set(re.findall(r"\| `([a-z_]+)` \|", TEXT))
