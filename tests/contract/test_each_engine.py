"""What this project relies on, in every engine: the embedded one, and each checkout found."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from one_host import ONE

from cbt_crypto.archive.files import hash_of
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.errors import HostError
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.results.readers.collectl import read_collectl
from cbt_crypto.run.targets.cluster import overlaid

pytestmark = pytest.mark.contract

Make = Callable[..., Any]


def remote(made: Any) -> Remote:
    return Remote(made.engine.common, str(made.tmp_dir))


def test_scripts_run_on_their_hosts_with_the_host_s_name(bench: Make) -> None:
    texts = {"c0": "echo one; echo $CBT_HOST; echo 'a: b'", "c1": "echo two; echo $CBT_HOST"}
    assert remote(bench()).run(texts, "try") == {"c0": "one\nc0\na: b", "c1": "two\nc1"}


def test_hosts_run_at_once(bench: Make, tmp_path: Path) -> None:
    """Each waits for the other: one after another they would never end."""
    text = f"cd {tmp_path}; touch $CBT_HOST.up; until [ -e c0.up ] && [ -e c1.up ]; do :; done"
    assert remote(bench()).run({"c0": text, "c1": text}, "wait", 60) == {"c0": "", "c1": ""}


def test_a_failing_host_is_named_with_what_it_said(bench: Make) -> None:
    with pytest.raises(HostError, match=r"^c1: try: exit status 3: no luck$"):
        remote(bench()).run({"c0": "true", "c1": "echo no luck >&2; exit 3"}, "try")


def test_a_host_that_does_not_answer_in_time(bench: Make) -> None:
    results = remote(bench()).attempt({"c0": "echo here", "c1": "sleep 60"}, 1.0)
    assert results["c0"].stdout == "here"
    assert (results["c1"].status, results["c1"].timed_out) == (None, True)


def test_text_with_everything_a_shell_knows(bench: Make) -> None:
    text = """echo 'single "double"'; x='$HOME `id` $(id)'; echo "$x" \\\\ %h %u '#' 'ä'"""
    expected = 'single "double"\n$HOME `id` $(id) \\ %h %u # ä'
    assert remote(bench()).run({"c0": text}, "quote") == {"c0": expected}


def test_a_file_is_copied_to_every_host(bench: Make, tmp_path: Path, shims: Any) -> None:
    made = bench()
    (tmp_path / "here").write_text("content")
    made.engine.common.pdcp("c0,c1", "", f"{tmp_path}/here", f"{tmp_path}/there").communicate()
    assert (tmp_path / "there").read_text() == "content"
    (call,) = shims.calls("pdcp")
    assert call[call.index("-w") + 1] == "c0,c1"


def test_a_run_directory_is_synced_with_the_hosts_names(bench: Make, tmp_path: Path) -> None:
    made = bench()
    run_dir = made.tmp_dir / "run" / "id-1"
    (run_dir / "collectl").mkdir(parents=True)
    (run_dir / "collectl" / "x.raw.gz").write_text("raw")
    (run_dir / "json_output.0").write_text("{}")
    local = tmp_path / "kept"
    made.engine.common.sync_files(str(run_dir), str(local))
    names = {path.name for path in local.iterdir()}
    for host in ("c0", "c1", "o0", "o1", "head"):
        assert {f"json_output.0.{host}", f"collectl.{host}"} <= names


def test_a_client_from_which_nothing_came_is_named(bench: Make, tmp_path: Path) -> None:
    made = bench()
    with pytest.raises(HostError, match=r"copy .* from it: nothing came"):
        made.engine.common.sync_files(f"{made.tmp_dir}/nothing", str(tmp_path / "kept"))


def test_directories_are_made_and_removed_where_clients_and_osds_are(
    bench: Make, shims: Any
) -> None:
    made = bench()
    path = made.tmp_dir / "run" / "x"
    made.engine.common.make_remote_dir(str(path))
    assert path.is_dir()
    made.engine.common.clean_remote_dir(str(path))
    assert not path.exists()
    for call in shims.calls("pdsh"):
        assert {"c0", "c1", "o0", "o1"} <= set(call[call.index("-w") + 1].split(","))


def test_sections_of_the_file(bench: Make) -> None:
    settings = bench(cluster={"iterations": 7}).engine.settings
    assert settings.cluster["head"] == "head"
    assert settings.cluster["iterations"] == 7
    assert settings.benchmarks == {"rbd_single_client": {"time": 10}}
    assert settings.client_endpoints == settings.common == {}


def test_a_second_file_replaces_the_first(bench: Make) -> None:
    bench(cluster={"iterations": 7})
    assert bench().engine.settings.cluster.get("iterations", 1) == 1


def test_the_file_is_noted_in_the_archive(bench: Make) -> None:
    made = bench()
    noted = yaml.safe_load((made.archive / "results" / "cbt_config.yaml").read_text())
    assert noted["cluster"]["clients"] == ["c0", "c1"]


@pytest.mark.parametrize("user", [None, "bench"])
def test_nodes_of_roles_each_once(bench: Make, user: Any) -> None:
    settings = bench(cluster={"user": user} if user else {}).engine.settings
    at = f"{user}@" if user else ""
    nodes = settings.getnodes("head", "clients", "osds", "mons", "mgrs").split(",")
    assert sorted(nodes) == [f"{at}{host}" for host in ("c0", "c1", "head", "o0", "o1")]


@pytest.fixture
def collectl(programs: Callable[[str, str], Path], tmp_path: Path) -> Path:
    """Notes how it was called, and its pid for the pkill that stands in."""
    log = tmp_path / "collectl.log"
    # The last word is the directory; the waits are for a first sample there.
    text = f'for to; do :; done; echo $$ >> $SHIM_PIDS; echo "collectl $*" >> {log}; '
    text += 'echo sample > "$to/x.raw"; '
    programs("collectl", text + "exec >/dev/null 2>&1; while :; do sleep 0.02; done")
    return log


def noted(log: Path) -> list[str]:
    for _ in range(500):
        if log.exists() and log.read_text():
            break
        time.sleep(0.01)
    return log.read_text().splitlines()


def alone(made: Any) -> str:
    """The embedded engine's outlives the shell that starts it; upstream's shell stays with its."""
    return "--nohup " if made.engine.name == "embedded" else ""


def running(tmp_path: Path) -> bool:
    pids = tmp_path / "shims.pids"
    return (
        any(Path(f"/proc/{pid}/exe").exists() for pid in pids.read_text().split())
        if (pids.exists())
        else False
    )


def test_collectl_runs_while_the_block_does(bench: Make, collectl: Path, tmp_path: Path) -> None:
    made = bench(cluster=ONE)
    with made.engine.monitoring.monitor(f"{made.tmp_dir}/run"):
        assert noted(collectl) == [
            f"collectl -s+mYZ -i 1:10 -F0 {alone(made)}-f {made.tmp_dir}/run/collectl"
        ]
        assert running(tmp_path)
    assert not running(tmp_path)


def test_our_sampler_takes_the_place_of_collectl(bench: Make, collectl: Path) -> None:
    made = bench(cluster=ONE, monitoring_profiles={"sampler": None})
    run_dir = Path(made.tmp_dir) / "run"
    with made.engine.monitoring.monitor(str(run_dir)):
        pid = int((run_dir / "sampler/.pid").read_text())
        assert b">>> " in (run_dir / "sampler/counters.raw").read_bytes()
    assert not Path(f"/proc/{pid}/exe").exists()
    assert not collectl.exists()
    series = read_collectl(run_dir / "sampler/counters.raw")
    assert series.threads == os.cpu_count()
    assert not series.truncated


def test_collectl_ends_when_its_block_does_not_end_well(
    bench: Make, collectl: Path, tmp_path: Path
) -> None:
    made = bench(cluster=ONE, monitoring_profiles={"collectl": {"args": "-i 2 --x {}"}})
    with pytest.raises(KeyboardInterrupt), made.engine.monitoring.monitor(f"{made.tmp_dir}/run"):
        assert noted(collectl) == [
            f"collectl -i 2 --x {{}} -F0 {alone(made)}-f {made.tmp_dir}/run/collectl"
        ]
        raise KeyboardInterrupt
    assert not running(tmp_path)


def test_a_benchmark_s_files_are_where_the_plan_has_them(bench: Make) -> None:
    made = bench()
    config = {"mode": "randread", "op_size": 4096, "iteration": 3}
    cluster = SimpleNamespace(tmp_dir=str(made.tmp_dir), config={"head": "head"})
    benchmark = made.engine.Benchmark(str(made.archive), cluster, config)
    name = f"results/00000003/id-{hash_of(config)}"
    assert benchmark.archive_dir == f"{made.archive}/{name}"
    assert benchmark.run_dir == f"{made.tmp_dir}/run/{name}"
    assert benchmark.config == config
    assert not benchmark.exists()
    benchmark.initialize()
    assert benchmark.exists()
    (Path(benchmark.run_dir) / "left over").touch()
    benchmark.run()
    assert list(Path(benchmark.run_dir).iterdir()) == [], "a run starts with an empty directory"
    text = (Path(benchmark.archive_dir) / "benchmark_config.yaml").read_text()
    assert "randread" in text
    benchmark.cleanup()
    assert not Path(benchmark.run_dir).exists()
    assert benchmark.exists(), "the archive is kept"


@pytest.mark.parametrize("path", ["/", "/tmp", "{0}", "{0}/../x", "{0}x/run", "run"])
def test_nothing_outside_tmp_dir_is_ever_removed(bench: Make, shims: Any, path: str) -> None:
    made = bench()
    with pytest.raises(ValueError, match="is not below tmp_dir"):
        made.engine.common.clean_remote_dir(path.format(made.tmp_dir))
    assert shims.calls() == []


def test_a_cluster_is_where_the_plan_has_it(bench: Make) -> None:
    made = bench(cluster={"osds_per_node": 2, "replication": [3, 1]})
    variant = (("replication", 1),)
    cluster, _ = overlaid(made.engine.Ceph, made.engine.settings.cluster, [Stack(())], variant)
    assert cluster.tmp_conf == f"{made.tmp_dir}/ceph/ceph.conf"
    assert [(osd.id, osd.host) for osd in cluster.site.osds] == [
        (0, "o0"),
        (1, "o0"),
        (2, "o1"),
        (3, "o1"),
    ]
    assert cluster.section.pool_profiles["rbd"].replication == 1
    assert (cluster.use_existing, cluster.pid_dir) == (False, f"{made.tmp_dir}/ceph/run")


def test_a_cluster_is_on_the_drive_of_its_place(bench: Make) -> None:
    """Upstream's engine made the OSDs of every drive where the first one is."""
    drives = {
        "A": {"host": "o0", "device": "/dev/disk/by-id/a"},
        "B": {"host": "o1", "device": "/dev/disk/by-id/b"},
    }
    listed = {"clients": ["c0", "o0", "o1"], "drives": drives, "osd_drives": ["A", "B"]}
    made = bench(cluster={**listed, "baseline": {"drive": "B"}})
    for name in ("B", "control"):
        settings, variant = made.engine.settings.cluster, (("drive", name),)
        cluster, bound = overlaid(made.engine.Ceph, settings, [Stack(())], variant)
        assert [(osd.host, osd.device) for osd in cluster.site.osds] == [
            ("o1", "/dev/disk/by-id/b")
        ]
        assert cluster.site.osds == bound.site.osds


def test_upstream_reads_what_this_place_of_a_campaign_is(upstream_bench: Make) -> None:
    """Its steps read the section themselves: of settings, and of the cluster's config."""
    made = upstream_bench(cluster={"osds_per_node": 1, "osds_per_device": [1, 2]})
    settings = made.engine.settings
    variant = (("osds_per_device", 2),)
    cluster, _ = overlaid(made.engine.Ceph, settings.cluster, [Stack(())], variant)
    profile = cluster.config["pool_profiles"]["rbd"]
    assert (cluster.config["osds_per_node"], profile["replication"]) == (2, 2)
    with cluster._settings_of_this_place():
        assert settings.cluster["osds_per_node"] == 2
        assert settings.cluster["osds"] == ["o0", "o1"]
    assert settings.cluster["osds_per_node"] == 1
    assert cluster.get_mon_hosts() == {"head": {"a": "v2:10.0.0.1:3300"}}
