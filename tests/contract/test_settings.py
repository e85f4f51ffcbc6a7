"""`settings`: the parsed file as module-level dicts."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cbt_crypto.engine.contract import Engine
from cbt_crypto.hosts import directories
from cbt_crypto.plan.layout import section_of

pytestmark = pytest.mark.contract

Make = Callable[..., Any]


def test_sections_are_dicts_of_what_the_file_says(own_bench: Make) -> None:
    made = own_bench(monitoring_profiles={"perf": {"nodes": ["osds"]}})
    settings = made.engine.settings
    assert settings.cluster["head"] == "head"
    assert settings.benchmarks == {"rbd_single_client": {"time": 10}}
    assert settings.monitoring_profiles == {"perf": {"nodes": ["osds"]}}
    assert settings.client_endpoints == settings.common == {}
    assert settings.cluster["archive_dir"] == str(made.archive)


def test_the_file_is_noted_in_the_archive(own_bench: Make) -> None:
    made = own_bench()
    noted = yaml.safe_load((made.archive / "results" / "cbt_config.yaml").read_text())
    assert noted["cluster"]["clients"] == ["c0", "c1"]
    assert "archive_dir" not in noted["cluster"]


def test_a_second_file_replaces_the_first(own_bench: Make) -> None:
    settings = own_bench(cluster={"iterations": 7}).engine.settings
    held = settings.cluster
    assert own_bench().engine.settings.cluster is held, "whoever holds the dict sees the new file"
    assert "iterations" not in held


def test_a_ceph_conf_on_the_command_line_comes_first(
    bench: Make, write_campaign: Callable[..., Path], tmp_path: Path
) -> None:
    settings = bench().engine.settings
    path = write_campaign(cluster={"conf_file": "file.conf"})
    for conf, expected in ((None, "file.conf"), ("line.conf", "line.conf")):
        settings.initialize(
            argparse.Namespace(config_file=str(path), archive=str(tmp_path / "a"), conf=conf)
        )
        assert settings.cluster["conf_file"] == expected


def test_without_tmp_dir_upstream_gets_ours(
    upstream: Engine, write_campaign: Callable[..., Path], tmp_path: Path
) -> None:
    """Upstream would take a directory below /tmp that is named after the process."""
    path = write_campaign(cluster={"tmp_dir": ...})
    upstream.settings.initialize(
        argparse.Namespace(config_file=str(path), archive=str(tmp_path / "archive"), conf=None)
    )
    assert "tmp_dir" not in yaml.safe_load(path.read_text())["cluster"]
    assert upstream.settings.cluster["tmp_dir"] == directories.DEFAULT
    assert upstream.settings.cluster["pid_dir"] == f"{directories.DEFAULT}/ceph/run"


def test_a_file_that_a_section_alone_tells_to_be_of_cbt(
    bench: Make, write_campaign: Callable[..., Path], tmp_path: Path
) -> None:
    settings = bench().engine.settings
    coded = {"replication": "erasure", "erasure_profile": "two"}
    path = write_campaign(
        cluster={"pool_profiles": {"rbd": coded}}, client_endpoints={"x": {"driver": "librbd"}}
    )
    settings.initialize(
        argparse.Namespace(config_file=str(path), archive=str(tmp_path / "a"), conf=None)
    )
    section = section_of(settings.cluster)
    assert section.use_existing and section.pool_profiles["rbd"].erasure_profile == "two"


@pytest.mark.parametrize(
    ("roles", "nodes"),
    [
        (("clients",), "c0,c1"),
        (("head", "clients", "osds", "mons", "mgrs"), "head,c0,c1,o0,o1"),
        (("osds", "clients"), "o0,o1,c0,c1"),
        (("mds",), ""),
        ((), ""),
    ],
)
def test_nodes_of_roles_in_order_and_each_once(
    own_bench: Make, roles: tuple[str, ...], nodes: str
) -> None:
    settings = own_bench().engine.settings
    assert settings.getnodes(*roles) == nodes
    settings = own_bench(cluster={"user": "bench"}).engine.settings
    expected = ",".join(f"bench@{node}" for node in nodes.split(",") if node)
    assert settings.getnodes(*roles) == expected


def test_one_host_need_not_be_a_list(bench: Make) -> None:
    assert bench(cluster={"clients": "c7"}).engine.settings.getnodes("clients") == "c7"
