"""Upstream's benchmarks as cells: made by each checkout, with our programs in their commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from one_host import ONE

from cbt_crypto.archive.documents import KEPT
from cbt_crypto.benchmarks import SCENARIOS
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.engine.contract import CellWork, Engine
from cbt_crypto.engine.upstream.checkout import BENCHMARKS, missing_library
from cbt_crypto.errors import RunError
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.secret import keep_secrets
from cbt_crypto.run.targets.cluster import overlaid

pytestmark = pytest.mark.contract

Make = Callable[..., Any]
_S3 = {"driver": "s3", "urls": ["http://c0:7480"], "access_key": "a", "secret_key": "forty-two-s3"}


@pytest.fixture
def native(upstream_bench: Make) -> Make:
    """A benchmark of upstream's by name, on a cluster of one host that is this machine."""

    def of(name: str, **options: Any) -> Any:
        made = upstream_bench(cluster=ONE)
        engine = made.engine
        engine.settings.client_endpoints["gateways"] = _S3
        keep_secrets(engine.settings.client_endpoints)
        cluster, bound = overlaid(engine.Ceph, engine.settings.cluster, [Stack(())])
        for folder in ("run", "log"):
            (Path(cluster.base) / folder).mkdir(parents=True)
        scenario = SCENARIOS[name].model_validate({"configuration": "A", "time": 1, **options})
        config = {"iteration": 0, **scenario.model_dump(mode="json")}
        remote = Remote(engine.common, str(made.tmp_dir))
        work = CellWork(str(made.archive), cluster, config, scenario, bound.site, Stack(()), remote)
        return engine.native(work)

    return of


@pytest.mark.parametrize(
    ("name", "options", "started"),
    [
        ("librbdfio", {"cmd_path": "/opt/fio"}, {"fio": "/opt/fio"}),
        ("radosbench", {}, {"rados": "rados"}),
        ("fio", {"client_endpoints": "gateways", "driver": "librbd"}, {"fio": "fio"}),
        ("rawfio", {"block_devices": "/dev/x", "fio_cmd": "/opt/fio"}, {"fio": "/opt/fio"}),
        ("rbdfio", {}, {"fio": "fio"}),
        ("kvmrbdfio", {"block_devices": "/dev/x"}, {"fio": "fio"}),
        ("hsbench", {"client_endpoints": "gateways"}, {"hsbench": "hsbench"}),
        ("getput", {}, {"getput": "getput"}),
    ],
)
def test_upstream_starts_what_notes_how_it_ended(
    native: Make, name: str, options: dict[str, Any], started: dict[str, str]
) -> None:
    """Also where the file gives a path: such a file once had no exit status."""
    made = native(name, **options)
    assert made.cluster.programs == started
    (program,) = started
    theirs = vars(made)["_theirs"]
    command = theirs.fio_cmd if hasattr(theirs, "fio_cmd") else theirs.cmd_path
    assert command == f"{made.cluster.base}/bin/{program}"


def test_what_is_not_read_is_kept(native: Make, programs: Callable[[str, str], Path]) -> None:
    """A stand-in for hsbench, of which no Debian package is."""
    programs("collectl", ":")  # nothing here would end a real one
    programs("hsbench", 'while [ "$1" != -o ]; do shift; done\necho figures > "$2"')
    made = native("hsbench", client_endpoints="gateways")
    made.initialize()
    made.run()
    (process,) = made.outcome["processes"]
    assert (process["kind"], process["exit_status"]) == (KEPT, 0)
    assert (Path(made.archive_dir) / "output.0.csv.c0").read_text() == "figures\n"


def test_a_benchmark_that_leaves_nothing_fails(
    native: Make, programs: Callable[[str, str], Path]
) -> None:
    programs("collectl", ":")
    programs("hsbench", "exit 7")
    made = native("hsbench", client_endpoints="gateways")
    made.initialize()
    with pytest.raises(RunError, match="hsbench left no output; c0: hsbench exited with 7: ") as no:
        made.run()
    assert "-s ***" in str(no.value) and _S3["secret_key"] not in str(no.value)


def test_what_a_checkout_lacks_is_said_before_anything_is_touched(upstream: Engine) -> None:
    path = upstream.checkout
    assert path is not None
    said = {name: missing_library(path, name) for name in BENCHMARKS}
    there = path / "benchmark" / "elbencho.py"
    assert said.pop("elbencho") == (
        None if there.exists() else f"benchmarks.elbencho: {path} has no module "
        "benchmark.elbencho; take another checkout of CBT"
    )  # fmt: skip
    assert set(said.values()) == {None}
