"""The article's scenarios: their processes and volumes, and their commands run with a fake fio."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, cast

import pytest

from cbt_crypto.benchmarks import SCENARIOS
from cbt_crypto.benchmarks.base import ClusterCommands, Volume
from cbt_crypto.benchmarks.rbd import RbdFio, RbdMultiClient, RbdSingleClient, RbdSingleClientSync
from cbt_crypto.hosts.site import Site
from cbt_crypto.run.cell import measure
from cbt_crypto.run.targets.base import commands_of

pytestmark = pytest.mark.unit

Fakes = Callable[..., Any]


def unwrapped(host: str, command: str) -> str:
    return command


def multi(**options: Any) -> RbdMultiClient:
    return RbdMultiClient(configuration="A", **options)


@pytest.mark.parametrize("kind", [RbdMultiClient, RbdSingleClient, RbdSingleClientSync])
def test_the_table_has_them_by_their_names(kind: type[RbdFio]) -> None:
    assert SCENARIOS[kind.name] is kind


@pytest.mark.parametrize(
    ("kind", "clients", "a_client", "iodepth"),
    [
        (RbdMultiClient, ("c0", "c1", "c2"), 10, 128),
        (RbdSingleClient, ("c0",), 1, 128),
        (RbdSingleClientSync, ("c0",), 1, 1),
    ],
)
def test_the_article_s_processes(
    site: Site, kind: type[RbdFio], clients: tuple[str, ...], a_client: int, iodepth: int
) -> None:
    scenario = kind(configuration="A")
    assert scenario.iodepth == iodepth
    assert scenario.active_clients(site.clients) == clients
    expected = [(host, str(n)) for host in clients for n in range(a_client)]
    assert [(one.host, one.volume) for one in scenario.processes(site)] == expected
    assert len({volume.name for volume in scenario.volumes(site)}) == len(expected)
    assert {volume.client for volume in scenario.volumes(site)} == set(clients)


def test_scenarios_share_volumes_of_the_same_size(site: Site) -> None:
    single = RbdSingleClient(configuration="A", vol_size=512)
    assert set(single.volumes(site)) <= set(multi(vol_size=512).volumes(site))
    assert not set(single.volumes(site)) & set(multi(vol_size=1024).volumes(site))


def options_of(call: list[str]) -> dict[str, str]:
    pairs = (word.removeprefix("--").partition("=") for word in call[2:])
    return {key: value for key, _, value in pairs}


def test_a_cache_that_was_asked_for_is_left_on(
    site: Site, fakes: Fakes, commands: ClusterCommands
) -> None:
    """With direct=1 fio turns librbd's cache off, whatever ceph.conf says."""
    noted = fakes()
    asked = replace(commands, rbd_cache=True)
    noted.run(
        multi(volumes_per_client=1).measure(site, str(noted.directory), asked, unwrapped)["c1"]
    )
    assert options_of(noted.calls[0])["direct"] == "0"


@pytest.mark.parametrize(
    ("conf", "overlay", "asked"),
    [
        ("", {}, False),
        ("[client]\nrbd cache = true", {}, True),
        ("[global]\nrbd_cache = true\n[client]\nrbd_cache = false", {}, False),
        ("[client]\nrbd_cache = false", {"client": {"rbd_cache": "true"}}, True),
    ],
)
def test_who_asks_for_librbd_s_cache(
    conf: str, overlay: dict[str, dict[str, str]], asked: bool
) -> None:
    """An existing cluster's default does not: its figures are as fio and CBT always have them."""
    stack = SimpleNamespace(overlays=[SimpleNamespace(ceph_conf=lambda: overlay)])
    work = SimpleNamespace(cluster=SimpleNamespace(conf_text=conf), stack=stack)
    assert measure.wants_rbd_cache(cast(Any, work)) is asked


def test_every_option_of_a_measurement(site: Site, fakes: Fakes, commands: ClusterCommands) -> None:
    scenario = multi(
        volumes_per_client=1, op_size=65536, iodepth=32, mode="randwrite", time=300, ramp=30,
        numjobs=2, log_avg_msec=500, pool_profile="fast", vol_size=1024,
    )  # fmt: skip
    noted = fakes()
    script = scenario.measure(site, str(noted.directory), commands, unwrapped)["c1"]
    noted.run(script)
    (call,) = noted.calls
    assert call[:2] == ["fio", "CEPH_CONF=/tmp/a b/ceph.conf"]
    assert options_of(call) == {
        "ioengine": "rbd",
        "clientname": "admin",
        "pool": "fast",
        "rbdname": "cbt-c1-0-1024",
        "direct": "1",
        "invalidate": "0",
        "name": "rbd-randwrite",
        "rw": "randwrite",
        "bs": "65536B",
        "iodepth": "32",
        "numjobs": "2",
        "time_based": "",
        "runtime": "300",
        "ramp_time": "30",
        "eta": "always",
        "output-format": "json+",
        "output": "json_output.0",
        "log_avg_msec": "500",
        "log_hist_msec": "500",
        "log_unix_epoch": "1",
        "write_bw_log": "output.0",
        "write_iops_log": "output.0",
        "write_lat_log": "output.0",
        "write_hist_log": "output.0",
    }


@pytest.mark.parametrize("mode", ["read", "write", "randread", "randwrite", "rw", "randrw"])
def test_mixed_modes_say_their_mix(
    site: Site, fakes: Fakes, commands: ClusterCommands, mode: str
) -> None:
    noted = fakes()
    scenario = RbdSingleClient(configuration="A", mode=mode, rwmixread=70)
    noted.run(scenario.measure(site, str(noted.directory), commands, unwrapped)["c0"])
    mixed = mode in ("rw", "randrw")
    assert options_of(noted.calls[0]).get("rwmixread") == ("70" if mixed else None)


def test_what_compresses_is_of_volumes_of_its_own(
    site: Site, fakes: Fakes, commands: ClusterCommands
) -> None:
    noted = fakes()
    plain, half = (RbdSingleClient(configuration="A", compressible=n) for n in (None, 50))
    for script in (half.prefill_scripts, half.measure):
        noted.calls.clear()
        args = (half.volumes(site), str(noted.directory), commands)
        text = (
            script(*args) if script == half.prefill_scripts else script(site, *args[1:], unwrapped)
        )
        noted.run(text["c0"])
        options = options_of(noted.calls[0])
        assert (options["buffer_compress_percentage"], "refill_buffers" in options) == ("50", True)
    assert plain.volumes(site) != half.volumes(site)
    assert "compressible" not in plain.model_dump()


@pytest.mark.parametrize(
    ("cluster", "client_id", "said"),
    [
        ("ceph", "admin", {"clientname": "admin"}),
        ("ceph", "bench.1", {"clientname": "bench.1"}),
        ("lab", "admin", {"clustername": "lab", "clientname": "client.admin"}),
        ("lab", "bench.1", {"clustername": "lab", "clientname": "client.bench.1"}),
    ],
)
def test_fio_finds_the_key_of_any_client_of_any_cluster(
    site: Site, fakes: Fakes, cluster: str, client_id: str, said: dict[str, str]
) -> None:
    """It takes no name from the file that CEPH_CONF names; and a whole name where it has one."""
    noted = fakes()
    scenario = RbdSingleClient(configuration="A")
    engine_cluster = cast(Any, SimpleNamespace(
        ceph_cmd="ceph", rbd_cmd="rbd", tmp_conf=f"/etc/ceph/{cluster}.conf"
    ))  # fmt: skip
    commands = commands_of(engine_cluster, client_id)
    volumes = scenario.volumes(site)
    for script in (
        scenario.prefill_scripts(volumes, str(noted.directory), commands),
        scenario.measure(site, str(noted.directory), commands, unwrapped),
    ):
        noted.run(script["c0"])
        options = options_of(noted.calls[-1])
        found = {key: options[key] for key in ("clustername", "clientname") if key in options}
        assert found == said
    assert (" --id " in commands.rbd) is (client_id != "admin")


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not here")
@pytest.mark.parametrize("mode", ["randread", "randrw"])
def test_fio_takes_every_option(mode: str, tmp_path: Path) -> None:
    scenario = multi(mode=mode, iodepth=1)
    command = scenario.fio_command(0, Volume("v", "rbd", "c0", 64))
    engine = command.replace("--ioengine=rbd", "--ioengine=null").replace("--clientname=admin ", "")
    engine = engine.replace("--pool=rbd ", "").replace("--rbdname=v ", "")
    argv = [*shlex.split(engine), "--size=1M", "--parse-only"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_each_process_leaves_its_own_exit_status_and_words(
    site: Site, fakes: Fakes, commands: ClusterCommands
) -> None:
    noted = fakes(["*rbdname=cbt-c0-1-*"])
    scenario = multi(volumes_per_client=3)
    noted.run(scenario.measure(site, str(noted.directory), commands, unwrapped)["c0"])
    assert noted.status == 0, "the processes ran, whatever they returned"
    assert noted.files("exit_status.*") == {
        "exit_status.0": "0\n",
        "exit_status.1": "3\n",
        "exit_status.2": "0\n",
    }
    said = noted.files("output.*")
    assert said["output.1"].endswith("fio: it is broken\n")
    assert said["output.2"].startswith("fio says --ioengine=rbd")


def test_a_missing_fio_is_an_exit_status_too(
    site: Site, fakes: Fakes, commands: ClusterCommands
) -> None:
    noted = fakes()
    scenario = multi(volumes_per_client=1, fio_cmd="/opt/no such/fio")
    noted.run(scenario.measure(site, str(noted.directory), commands, unwrapped)["c0"])
    assert noted.files("exit_status.*") == {"exit_status.0": "127\n"}
    assert "/opt/no such/fio" in noted.files("output.0")["output.0"]


def test_all_processes_of_a_host_run_at_once(
    site: Site, fakes: Fakes, commands: ClusterCommands, programs: Callable[[str, str], Any]
) -> None:
    noted = fakes()
    # Each waits until all four are there: one after another they would never end.
    programs("fio", "touch here.$$; until set -- here.*; [ $# = 4 ]; do sleep 0.02; done")
    scenario = multi(volumes_per_client=4)
    noted.run(scenario.measure(site, str(noted.directory), commands, unwrapped)["c2"])
    assert set(noted.files("exit_status.*").values()) == {"0\n"}


def test_overlays_wrap_each_process(site: Site, fakes: Fakes, commands: ClusterCommands) -> None:
    def wrapped(host: str, command: str) -> str:
        return f"env WRAPPED={host} {command} --wrapped"

    noted = fakes()
    scenario = multi(volumes_per_client=2)
    noted.run(scenario.measure(site, str(noted.directory), commands, wrapped)["c1"])
    assert [call[-1] for call in noted.calls] == ["--wrapped", "--wrapped"]
    assert all(call[1] == "CEPH_CONF=/tmp/a b/ceph.conf" for call in noted.calls)


def test_volumes_are_made_by_the_head(site: Site, fakes: Fakes, commands: ClusterCommands) -> None:
    noted = fakes()
    scenario = multi(volumes_per_client=2, vol_size=1024, order=23, pool_profile="fast")
    noted.run(scenario.create(scenario.volumes(site), commands))
    assert noted.status == 0
    made = sorted(call[2:] for call in noted.calls)
    assert made == [
        ["-c", "/tmp/a b/ceph.conf", "create", "--size", "1024", "--object-size", "8388608B",
         f"fast/cbt-{host}-{n}-1024"]
        for host in ("c0", "c1", "c2") for n in (0, 1)
    ]  # fmt: skip


def test_a_volume_that_cannot_be_made_fails_the_step(
    site: Site, fakes: Fakes, commands: ClusterCommands
) -> None:
    noted = fakes(["*/cbt-c1-0-*"])
    scenario = multi(volumes_per_client=2)
    noted.run(scenario.create(scenario.volumes(site), commands))
    assert noted.status != 0
    assert "rbd: it is broken" in noted.stderr


def test_prefill_writes_each_volume_from_end_to_end(
    site: Site, fakes: Fakes, commands: ClusterCommands
) -> None:
    scenario = multi(volumes_per_client=2, vol_size=512, prefill_op_size=1 << 20, prefill_iodepth=4)
    scripts = scenario.prefill_scripts(scenario.volumes(site), "/nowhere", commands)
    assert list(scripts) == ["c0", "c1", "c2"]
    noted = fakes()
    script = scenario.prefill_scripts(scenario.volumes(site), str(noted.directory), commands)["c1"]
    noted.run(script)
    assert noted.status == 0
    for call in noted.calls:
        options = options_of(call)
        assert (options["rw"], options["bs"], options["iodepth"]) == ("write", "1048576", "4")
        assert options["size"] == "512M"
        assert not {"time_based", "runtime"} & options.keys()
    assert {options_of(call)["rbdname"] for call in noted.calls} == {
        "cbt-c1-0-512",
        "cbt-c1-1-512",
    }


def test_a_prefill_that_fails_says_why(site: Site, fakes: Fakes, commands: ClusterCommands) -> None:
    noted = fakes(["*rbdname=cbt-c0-1-*"])
    scenario = multi(volumes_per_client=2)
    noted.run(
        scenario.prefill_scripts(scenario.volumes(site), str(noted.directory), commands)["c0"]
    )
    assert noted.status == 1
    assert "fio: it is broken" in noted.stderr


def test_prefill_can_be_left_out(site: Site, commands: ClusterCommands) -> None:
    scenario = multi(prefill=False)
    assert scenario.prefill_scripts(scenario.volumes(site), "/r", commands) == {}


def test_a_run_directory_that_is_not_there_fails_the_step(
    site: Site, fakes: Fakes, commands: ClusterCommands
) -> None:
    noted = fakes()
    noted.run(multi().measure(site, "/no/such directory", commands, unwrapped)["c0"])
    assert noted.status != 0
    assert noted.calls == []
