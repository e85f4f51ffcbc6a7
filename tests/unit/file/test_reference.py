"""docs/file.md and the JSON Schema say what `load` takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable

import pytest
import yaml
from file_reference import reference
from jsonschema import Draft202012Validator

from cbt_crypto.benchmarks import SCENARIOS
from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.plan.file import ClusterSection, json_schema, read_campaign
from cbt_crypto.plan.file.cluster import CephSettings, CollectlProfile, PerfProfile, PoolProfile

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))


def test_the_committed_reference_is_that_of_the_models() -> None:
    committed = (ROOT / "docs" / "file.md").read_text(encoding="utf-8")
    assert committed == reference() + "\n", "python tests/programs/file_reference.py > docs/file.md"


def test_its_example_is_a_campaign(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", reference(), re.DOTALL)
    path = tmp_path / "example.yaml"
    path.write_text(example)
    assert list(read_campaign(path).configurations)[1] == "control"


@pytest.mark.parametrize(
    "model",
    [
        *(ClusterSection, PoolProfile, CephSettings, CollectlProfile, PerfProfile),
        *OVERLAYS.values(),
        *SCENARIOS.values(),
    ],
)
def test_every_key_is_described(model: Any) -> None:
    text = reference()
    for key, info in model.model_fields.items():
        assert info.description, key
        assert f"| `{key}`" in text
        assert info.alias is None or f"`{info.alias}`" in text


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_published_campaign_is_valid(validator: Draft202012Validator, path: Path) -> None:
    read_campaign(path)
    validator.validate(yaml.safe_load(path.read_text()))


def test_there_are_published_campaigns() -> None:
    assert CONFIGS


@pytest.mark.parametrize(
    ("sections", "good"),
    [
        ({}, True),
        ({"cluster": {"ceph-osd_cmd": "x", "ceph_mon_cmd": "y"}}, True),
        ({"benchmarks": {"rbd_single_client": {"cmd_path": "x", "op_size": [4096, 512]}}}, True),
        ({"benchmarks": {"rbd_single_client": {"workloads": {"mode": ["read"]}}}}, True),
        ({"cluster": {"osd_devices": {"o0": ["/dev/a"], "o1": ["/dev/b"]}}}, True),
        ({"monitoring_profiles": {"perf": {"nodes": ["osds"]}}}, True),
        ({"cluster": {"osds_per_nod": 2}}, False),
        ({"cluster": {"iterations": "3"}}, False),
        ({"cluster": {"iterations": True}}, False),
        ({"cluster": {"head": "a;b"}}, False),
        ({"cluster": {"configurations": {"A": {"no_such_overlay": {}}}}}, False),
        ({"cluster": {"configurations": {"A": {"luks": {"no_such_option": 1}}}}}, False),
        ({"benchmarks": {"rbd_single_client": {"op_size": [4096, 5]}}}, False),
        ({"benchmarks": {"no_such_scenario": {}}}, False),
        ({"monitoring_profiles": {"collectl": {"nodes": ["nobody"]}}}, False),
        ({"extra": {}}, False),
    ],
)
def test_the_schema_agrees_with_load(
    validator: Draft202012Validator, write_campaign: Callable[..., Path], sections: Any, good: bool
) -> None:
    path = write_campaign(**sections)
    assert validator.is_valid(yaml.safe_load(path.read_text())) is good
    if good:
        read_campaign(path)
    else:
        with pytest.raises(Exception, match=r"campaign\.yaml"):
            read_campaign(path)
