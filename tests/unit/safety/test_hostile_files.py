"""Campaign files that somebody else wrote: every key with what no campaign has there.

A reduced form of a longer hunt: a value, or one sentence for each problem, and nothing else.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

from cbt_crypto.cli import cbt_crypto
from cbt_crypto.errors import UsageError
from cbt_crypto.main import cbt
from cbt_crypto.plan.file import read_campaign
from cbt_crypto.plan.file.cluster import ClusterSection
from cbt_crypto.plan.order import cells_of
from cbt_crypto.plan.steps import plan
from cbt_crypto.run.progress import CampaignProgress

pytestmark = pytest.mark.unit

CAMPAIGN: dict[str, Any] = {
    "cluster": {
        "head": "a", "clients": ["a"], "osds": ["a"], "replication": 1,
        "mons": {"a": {"a": "10.0.0.1"}},
        "mgrs": {"a": {"x": None}}, "osd_file_size": "1G", "settings": {"rbd_cache": True},
        "configurations": {"Plain": {}, "LUKS": {"luks": {"cipher": "aes-xts-plain64"}}},
    },
    "benchmarks": {"rbd_single_client": {"op_size": [4096], "mode": "randread", "iodepth": 4}},
}  # fmt: skip
EVIL = "=x$\\frac{\x1b]0;x\x07\x9b31m</script>'\"`[/b]\u202e\n"
VALUES = [
    [], {}, "", None, -1, 10**400, EVIL, [[None]], {EVIL: 1}, "x" * 5000, b"\xff\x00",
]  # fmt: skip


def changed(document: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """The file with `value` at each key of the cluster, of a scenario, and of what is below."""
    keys = {**dict.fromkeys(ClusterSection.model_fields), **document["cluster"]}
    (scenario,) = document["benchmarks"]
    for section, names in (
        (("cluster",), keys),
        (("benchmarks", scenario), document["benchmarks"][scenario]),
        (("cluster", "configurations"), document["cluster"]["configurations"]),
        ((), ("cluster", "benchmarks", "monitoring_profiles", "client_endpoints")),
    ):
        for name in names:
            other = copy.deepcopy(document)
            place = other
            for key in section:
                place = place[key]
            place[name] = value
            yield ".".join((*section, name)), other


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:12])
def test_any_value_at_any_key(tmp_path: Path, value: Any) -> None:
    """`replication: []` ended with a traceback."""
    path = tmp_path / "campaign.yaml"
    refused = 0
    for key, content in changed(CAMPAIGN, value):
        path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
        try:
            campaign = read_campaign(path)
            cells_of(campaign)
            plan(campaign)
        except UsageError as error:
            refused += 1
            said = str(error)
            assert said.startswith(str(path)) or key == "cluster.conf_file", key
            assert len(said) < 20_000, key
    assert refused > 10


OBEYED = {"\x1b", "\x07", "\x9b", "\u202e"}
ESCAPES = "\x1b]0;owned\x07\x9b31m\u202e"


def test_what_is_wrong_is_said_without_what_a_terminal_obeys(tmp_path: Path) -> None:
    """The sentence had the name of the ceph.conf as the file has it."""
    document = copy.deepcopy(CAMPAIGN)
    document["cluster"]["conf_file"] = f"/x{ESCAPES}"
    path = tmp_path / "campaign.yaml"
    path.write_text(yaml.safe_dump(document))
    for program, words in (
        (cbt_crypto, ["check", "--no-hosts", str(path)]), (cbt, ["--plan", str(path)]),
        (cbt, ["--plan", f"{tmp_path}/{ESCAPES}.yaml"]),
        (cbt_crypto, ["report", f"{tmp_path}/{ESCAPES}"]),
        (cbt_crypto, ["compare", f"A={ESCAPES}", "-o", f"{tmp_path}/out"]),
    ):  # fmt: skip
        done = CliRunner().invoke(program, words)
        assert done.exit_code == 2, done.output
        assert not OBEYED & set(done.output), words


def test_what_hosts_say_is_shown_without_it_too(tmp_path: Path) -> None:
    """A program of a local user's has the name; a failed command prints it."""
    console = Console(file=io.StringIO(), force_terminal=False)
    progress = CampaignProgress(console, 1, 1.0, None, tmp_path)
    progress.note(f"failed: node1: held open by {ESCAPES}")
    progress.phase(f"deploy {ESCAPES}")
    assert isinstance(console.file, io.StringIO)
    assert not OBEYED & set(console.file.getvalue())
