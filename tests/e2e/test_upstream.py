"""Campaigns on real Ceph with upstream CBT as the engine, in namespaces: it kills by name."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from loops import loop_device
from one_machine import cluster_section

from cbt_crypto.engine.upstream.checkout import Checkout

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parents[2]
_ISOLATED = ROOT / "tests" / "programs" / "isolated.sh"
_DEPLOY = ROOT / "tests" / "programs" / "deploy_cluster.py"
_SHORT = {"vol_size": 64, "iodepth": 16, "time": 5, "op_size": 4096}
#: What else runs on a test machine makes single runs differ by so much, and not by more.
_NOISE = 4.0


def needs(*programs: str, device: str = "/dev/null") -> pytest.MarkDecorator:
    """Skip a test, with what is missing, where a program or a device is not on this machine.

    What `make test` installs is not looked for: without it a test is to fail.
    """
    missing = [program for program in programs if shutil.which(program) is None]
    missing += [] if Path(device).exists() else [device]
    return pytest.mark.skipif(bool(missing), reason=f"this machine has no {', '.join(missing)}")


def write(
    directory: Path, name: str, cluster: dict[str, Any], benchmarks: dict[str, Any], **more: Any
) -> Path:
    section = cluster_section(directory, 13391, **cluster)
    document = {"cluster": section, "benchmarks": benchmarks, **more}
    path = directory / name
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def isolated(directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(_ISOLATED), str(directory), *command],
        capture_output=True, text=True, check=False, timeout=600, cwd=ROOT,
    )  # fmt: skip


def campaign(engine: str, archive: Path, config: Path) -> list[str]:
    return [sys.executable, str(ROOT / "cbt.py"), "--cbt", engine, "-a", str(archive), str(config)]


def cells(archive: Path) -> list[dict[str, Any]]:
    paths = sorted(archive.glob("results/*/id-*/cell.json"))
    return [{**json.loads(path.read_text()), "directory": path.parent} for path in paths]


def rows(archive: Path) -> dict[tuple[Any, ...], float]:
    """IOPS by scenario, configuration and mode, from fio's own output."""
    found = {}
    for cell in cells(archive):
        (process,) = cell["processes"]
        job = json.loads((cell["directory"] / process["json"]).read_text())["jobs"][0]
        key = (cell["scenario"], cell["configuration"], cell["parameters"]["mode"])
        found[key] = job["read"]["iops"] + job["write"]["iops"]
    return found


@pytest.fixture(scope="module")
def both(
    needs_ceph: None, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Checkout], tuple[Path, subprocess.CompletedProcess[str], Path]]:
    """One campaign, once on each engine: the embedded one's archive is made once for all."""
    made: dict[str, Any] = {}

    def run(engine: str, name: str) -> tuple[Path, Any]:
        if name not in made:
            directory = tmp_path_factory.mktemp("engine")
            config = write(
                directory, "campaign.yaml",
                {
                    "configurations": {"Plain": {}, "Secure": {"secure_messenger": {}}},
                    "control": False,
                },
                {"rbd_single_client": {**_SHORT, "mode": ["randread", "randwrite"]}},
            )  # fmt: skip
            done = isolated(directory, *campaign(engine, directory / "archive", config))
            made[name] = directory, done
        found: tuple[Path, Any] = made[name]
        return found

    def both(checkout: Checkout) -> Any:
        embedded, _ = run("embedded", "embedded")
        upstream, done = run(str(checkout.path), checkout.version)
        return upstream, done, embedded

    return both


def test_every_cell_runs_once_and_is_proved(both: Any, checkout: Checkout) -> None:
    directory, done, _ = both(checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    first = done.stdout.splitlines()[0]
    assert first == f"engine: upstream {checkout.version} at {(checkout.commit or '')[:12]}"
    measured = cells(directory / "archive")
    assert len(measured) == 4
    assert {cell["state"] for cell in measured} == {"finished"}
    for number in range(1, 5):
        assert done.stdout.count(f"cell {number}/4:") == 1
    for cell in measured:
        _is_proved_of_the_messenger(cell)


def test_both_engines_give_the_same_table(both: Any, checkout: Checkout) -> None:
    directory, _, embedded = both(checkout)
    ours, theirs = rows(embedded / "archive"), rows(directory / "archive")
    assert ours.keys() == theirs.keys()
    for key, iops in ours.items():
        assert 1 / _NOISE < theirs[key] / iops < _NOISE, key


def test_the_archive_names_the_engine_and_holds_no_key(both: Any, checkout: Checkout) -> None:
    directory, _, _ = both(checkout)
    archive = directory / "archive"
    noted = json.loads((archive / "results" / "environment.json").read_text())
    assert noted["engine"]["name"] == "upstream"
    assert noted["engine"]["commit"] == checkout.commit
    found = subprocess.run(
        ["grep", "-rlE", r"key = [A-Za-z0-9+/]{38}==", str(archive)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.stdout == ""
    assert not (directory / "cluster").exists(), "nothing is left"


def test_the_checkout_is_as_it_was(both: Any, checkout: Checkout) -> None:
    both(checkout)
    status = ["git", "-C", str(checkout.path), "status", "--porcelain"]
    assert subprocess.run(status, capture_output=True, text=True, check=True).stdout == ""


def test_the_example_for_one_machine_ends_in_a_table(
    needs_ceph: None, checkout: Checkout, tmp_path: Path
) -> None:
    """configs/localhost.yaml names no `tmp_dir`, and CBT one after its process: ours is taken."""
    document = yaml.safe_load((ROOT / "configs" / "localhost.yaml").read_text())
    configurations = {"Unencrypted": {}, "Secure messenger": {"secure_messenger": {}}}
    changes = {"configurations": configurations, "control": False, "osd_file_size": "4G"}
    document["cluster"].update(changes)
    document["benchmarks"] = {"rbd_single_client": {**_SHORT, "mode": "randwrite"}}
    assert "tmp_dir" not in document["cluster"]
    config = tmp_path / "localhost.yaml"
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    (tmp_path / "lib" / "ceph").mkdir(parents=True)
    own_lib = f'mount --bind {shlex.quote(str(tmp_path / "lib"))} /var/lib && exec "$@"'
    command = campaign(str(checkout.path), tmp_path / "archive", config)
    done = isolated(tmp_path, "sh", "-c", own_lib, "sh", *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "throughput as percent of Unencrypted" in done.stdout
    assert [cell["state"] for cell in cells(tmp_path / "archive")] == ["finished"] * 2
    assert list((tmp_path / "lib").iterdir()) == [tmp_path / "lib" / "ceph"], "nothing is left"


def test_upstream_s_benchmarks_run_under_overlays(
    needs_ceph: None, checkout: Checkout, tmp_path: Path, report_cells: Callable[[Path], Any]
) -> None:
    images = {"driver": "librbd", "endpoints_per_client": 2, "endpoint_size": 128}
    config = write(
        tmp_path, "campaign.yaml",
        {
            "configurations": {"Plain": {}, "Secure": {"secure_messenger": {}}},
            "control": False,
            "use_existing": False,
        },
        {
            "librbdfio": {**_SHORT, "mode": "randread"},
            "radosbench": {"time": 5, "op_size": 65536},
            "fio": {"client_endpoints": "images", "size": 64, "time": 5, "op_size": 4096,
                    "mode": "randwrite", "iodepth": 8},
        },
        client_endpoints={"images": {**images, "pool_profile": "rbd"}},
    )  # fmt: skip
    done = isolated(tmp_path, *campaign(str(checkout.path), tmp_path / "archive", config))
    assert done.returncode == 0, done.stdout + done.stderr
    measured = cells(tmp_path / "archive")
    statuses = {"librbdfio": [0], "radosbench": [0, 0], "fio": [0, 0]}
    assert len(measured) == 6
    for cell in measured:
        name = cell["scenario"]
        assert [process["exit_status"] for process in cell["processes"]] == statuses[name]
        assert f"{name}, " in done.stdout, "a table of its own"
        _is_proved_of_the_messenger(cell)
        _is_counted_at_the_osds(cell)
    figures = {
        (cell["dimensions"]["scenario"], cell["name"]): cell["figures"]["iops"]
        for cell in report_cells(tmp_path / "archive")
    }
    assert set(figures) == {(name, c) for name in statuses for c in ("Plain", "Secure")}
    assert min(figures.values()) > 0, "a finished cell has figures"


@needs(device="/dev/fuse")
def test_fio_of_upstream_on_fuse_endpoints(
    needs_ceph: None, checkout: Checkout, tmp_path: Path, report_cells: Callable[[Path], Any]
) -> None:
    """XFS on files of rbd-fuse; tests/long/test_kernel_endpoints.py has the kernel's."""
    files = {"driver": "rbd-fuse", "endpoints_per_client": 1, "endpoint_size": 512}
    config = write(
        tmp_path, "campaign.yaml",
        {
            "configurations": {"Plain": {}, "Secure": {"secure_messenger": {}}},
            "control": False,
            "use_existing": False,
        },
        {"fio": {"client_endpoints": "files", "size": 32, "time": 5, "op_size": 65536,
                 "mode": "randwrite", "iodepth": 4}},
        client_endpoints={"files": {**files, "pool_profile": "rbd"}},
    )  # fmt: skip
    done = isolated(tmp_path, *campaign(str(checkout.path), tmp_path / "archive", config))
    assert done.returncode == 0, done.stdout + done.stderr
    measured = cells(tmp_path / "archive")
    assert sorted(cell["configuration"] for cell in measured) == ["Plain", "Secure"]
    for cell in measured:
        assert [process["exit_status"] for process in cell["processes"]] == [0]
        _is_proved_of_the_messenger(cell)
    assert min(cell["figures"]["iops"] for cell in report_cells(tmp_path / "archive")) > 0


@needs(device="/dev/fuse")
def test_fio_of_upstream_on_cephfs(
    needs_ceph: None, checkout: Checkout, tmp_path: Path, report_cells: Callable[[Path], Any]
) -> None:
    """Each cell makes the file system anew; in the order of turns the MDS is restarted, too."""
    config = write(
        tmp_path, "campaign.yaml",
        {
            "configurations": {"Plain": {}, "Secure": {"secure_messenger": {}}},
            "control": False,
            "use_existing": False,
            "mdss": {"localhost": {"a": None}},
        },
        {"fio": {"client_endpoints": "files", "size": 32, "time": 5, "op_size": 65536,
                 "mode": ["randwrite", "randread"], "iodepth": 4}},
        client_endpoints={"files": {"driver": "cephfs-fuse", "pool_profile": "rbd"}},
    )  # fmt: skip
    done = isolated(tmp_path, *campaign(str(checkout.path), tmp_path / "archive", config))
    assert done.returncode == 0, done.stdout + done.stderr
    measured = cells(tmp_path / "archive")
    assert sorted(cell["configuration"] for cell in measured) == ["Plain"] * 2 + ["Secure"] * 2
    for cell in measured:
        assert [process["exit_status"] for process in cell["processes"]] == [0]
        _is_proved_of_the_messenger(cell)
    assert min(cell["figures"]["iops"] for cell in report_cells(tmp_path / "archive")) > 0
    assert not (tmp_path / "cluster").exists(), "nothing is left"


def test_upstream_s_benchmarks_of_devices(
    needs_ceph: None, checkout: Checkout, tmp_path: Path, report_cells: Callable[[Path], Any]
) -> None:
    """They overwrite what a file names: only what nobody uses, and what carries no data."""
    with contextlib.ExitStack() as stack:
        raw, kvm, foreign = (
            stack.enter_context(loop_device(tmp_path / f"device{n}", 200 << 20)) for n in range(3)
        )
        subprocess.run(["mkfs.ext4", "-q", foreign], check=True)
        before = (tmp_path / "device2").read_bytes()[:4096]
        for wanted, name, exit_status in ((foreign, "refused", 2), (kvm, "taken", 0)):
            load = {"rawfio": {**_SHORT, "block_devices": raw, "mode": "randwrite"},
                    "kvmrbdfio": {**_SHORT, "block_devices": wanted,
                                  "mode": ["randwrite", "randread"]}}  # fmt: skip
            plain = {"configurations": {"Plain": {}}}
            config = write(tmp_path, f"{name}.yaml", plain, load)
            done = isolated(tmp_path, *campaign(str(checkout.path), tmp_path / name, config))
            assert done.returncode == exit_status, done.stdout + done.stderr
            if exit_status:
                assert f"{foreign} carries data (ext4); name another device" in done.stderr
        assert (tmp_path / "device2").read_bytes()[:4096] == before
    found = report_cells(tmp_path / "taken")
    names = [cell["dimensions"]["scenario"] for cell in found]
    assert sorted(names) == ["kvmrbdfio", "kvmrbdfio", "rawfio"]
    assert min(cell["figures"]["iops"] for cell in found) > 0


def _is_proved_of_the_messenger(cell: dict[str, Any]) -> None:
    """Encrypted in the configuration that is called so, and in no other."""
    proof = json.loads((cell["directory"] / "proof.json").read_text())
    (found,) = [o for o in proof["overlays"] if o["overlay"] == "secure_messenger"]
    assert found["proved"] and found["present"] is (cell["configuration"] == "Secure")


def _is_counted_at_the_osds(cell: dict[str, Any]) -> None:
    """The kernel's counts of a cell agree with what fio and rados say that they moved."""
    before = [drive["written_bytes"] for drive in cell["overwritten"].values()]
    assert len(before) == 2 and min(before) > 0
    counters = [osd["counters"] for osd in cell["storage"].values()]
    read = sum(counted["client_read_bytes"] for counted in counters)
    written = sum(counted["client_written_bytes"] for counted in counters)
    if cell["scenario"] != "radosbench":
        outputs = [cell["directory"] / process["json"] for process in cell["processes"]]
        jobs = [json.loads(output.read_text())["jobs"][0] for output in outputs]
        direction = "read" if cell["scenario"] == "librbdfio" else "write"
        said = sum(job[direction]["io_bytes"] for job in jobs)
        # The ramp is in the one count alone.
        assert said <= (read if direction == "read" else written) < 10 * said + (64 << 20)
        return
    texts = [path.read_text() for path in cell["directory"].glob("**/output.0.*")]
    (made,) = re.findall(r"Total writes made:\s+(\d+)", "".join(texts))
    assert written >= int(made) * 65536


def test_a_monitor_that_does_not_start_ends_the_campaign(
    needs_ceph: None, checkout: Checkout, tmp_path: Path
) -> None:
    """Upstream would wait 300 s for each command to it, go on, and end with status 0."""
    broken = tmp_path / "ceph-mon"
    broken.write_text("#!/bin/sh\necho this monitor is broken >&2\nexit 1\n")
    broken.chmod(0o755)
    config = write(
        tmp_path, "campaign.yaml", {"ceph_mon_cmd": str(broken)},
        {"rbd_single_client": {**_SHORT, "mode": "randread"}},
    )  # fmt: skip
    done = isolated(tmp_path, *campaign(str(checkout.path), tmp_path / "archive", config))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "make the monitors: localhost: ceph-mon exited with 1" in done.stderr
    assert "this monitor is broken" in done.stderr
    assert cells(tmp_path / "archive") == []


#: Runs a campaign, and sends it a signal when a line is there; prints its status and what is left.
_SIGNALLED = """
signal=$1 line=$2; shift 2
# A shell's background is deaf to interrupts, and a campaign respects that.
env --default-signal=INT,TERM,HUP "$@" > out 2> err & pid=$!
until grep -q "$line" out; do kill -0 $pid; sleep 0.2; done
case $line in cell*) until pgrep -x fio > /dev/null; do kill -0 $pid; sleep 0.2; done ;; esac
sleep 2
kill -"$signal" $pid
status=0; wait $pid || status=$?
echo "status $status"
# So written, it is not found by upstream's own pkill -f, which would interrupt this shell.
pgrep -a "ceph-|fio|coll[e]ctl" || :
"""


@pytest.mark.parametrize(
    ("signal", "line"),
    [("TERM", "deploy Secure"), ("TERM", "cell 1/2"), ("INT", "cell 2/2"), ("HUP", "cell 1/2")],
)
def test_a_signal_takes_down_what_upstream_made(
    needs_ceph: None, checkout: Checkout, tmp_path: Path, signal: str, line: str
) -> None:
    """By upstream's own killing by name, which its namespace confines to this cluster."""
    secure = {"Plain": {}, "Secure": {"secure_messenger": {}}}
    config = write(
        tmp_path, "campaign.yaml", {"configurations": secure, "control": False},
        {"rbd_single_client": {**_SHORT, "mode": "randread"}},
    )  # fmt: skip
    command = campaign(str(checkout.path), tmp_path / "archive", config)
    script = f"set -eu; cd {shlex.quote(str(tmp_path))}\n{_SIGNALLED}"
    done = isolated(tmp_path, "sh", "-c", script, "sh", signal, line, *command)
    said = (tmp_path / "err").read_text()
    assert done.stdout == "status 1\n", (done.stdout, said, (tmp_path / "out").read_text())
    assert "interrupted; " in said and "Traceback" not in said, said
    assert not (tmp_path / "cluster").exists()
    measured = [cell["state"] for cell in cells(tmp_path / "archive")]
    assert measured == ["finished"] * (line in ("deploy Secure", "cell 2/2"))
    if signal == "INT":
        again = isolated(tmp_path, *command)
        assert again.returncode == 0, again.stdout + again.stderr
        states = [cell["state"] for cell in cells(tmp_path / "archive")]
        assert states == ["finished"] * 2


def stock(python: Path, directory: Path, clone: Path, archive: Path, config: Path) -> Any:
    words = shlex.join([str(python), "./cbt.py", "-a", str(archive), str(config)])
    return isolated(directory, "sh", "-c", f"cd {clone} && {words}")


def test_with_the_plugin_mechanism_stock_cbt_runs_a_campaign_and_prints_our_table(
    needs_ceph: None, with_plugins: Path, python_with_wheel: Path, tmp_path: Path,
    report_cells: Callable[[Path], Any],
) -> None:  # fmt: skip
    """With this package installed as it is published: by a wheel, in a Python of its own."""
    config = write(
        tmp_path, "campaign.yaml",
        {
            "type": "overlays",
            "control": False,
            "configurations": {"Plain": {}, "One core": {"cpuset": {"osd_cores": 1}}},
        },
        {"rbd_single_client": {**_SHORT, "mode": "randread"}},
    )  # fmt: skip
    done = stock(python_with_wheel, tmp_path, with_plugins, tmp_path / "archive", config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "throughput as percent of Plain" in done.stdout
    assert "random reads" in done.stdout
    found = report_cells(tmp_path / "archive")
    assert {cell["name"] for cell in found} == {"Plain", "One core"}
    assert min(cell["figures"]["iops"] for cell in found) > 0
    told = ["git", "-C", str(with_plugins), "rev-parse", "HEAD"]
    commit = subprocess.run(told, capture_output=True, text=True, check=True).stdout.strip()
    noted = json.loads((tmp_path / "archive" / "results" / "environment.json").read_text())
    assert noted["engine"]["commit"] == commit


def test_what_will_not_do_ends_stock_cbt_with_a_sentence(
    needs_ceph: None, with_plugins: Path, python_with_wheel: Path, tmp_path: Path
) -> None:
    config = write(
        tmp_path, "campaign.yaml",
        {"type": "overlays", "configurations": {"Many": {"cpuset": {"osd_cores": 4000}}}},
        {"rbd_single_client": _SHORT},
    )  # fmt: skip
    done = stock(python_with_wheel, tmp_path, with_plugins, tmp_path / "archive", config)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "localhost: osd_cores asks for 4000 whole cores of " in done.stderr
    assert not (tmp_path / "cluster").exists()


def test_an_existing_cluster_is_recognised(needs_ceph: None, tmp_path: Path) -> None:
    check_existing(tmp_path, "embedded")


def test_an_existing_cluster_on_upstream(
    needs_ceph: None, checkout: Checkout, tmp_path: Path
) -> None:
    check_existing(tmp_path, str(checkout.path))


def test_upstream_s_benchmarks_on_a_cluster_that_exists(
    needs_ceph: None, checkout: Checkout, tmp_path: Path
) -> None:
    """They make pools, and remove them first: a pool of that name that is another's stays."""
    configurations: dict[str, Any] = {"As it is": {}}
    deployed = write(
        tmp_path, "deploy.yaml", {"configurations": configurations},
        {"rbd_single_client": {**_SHORT, "mode": "randread"}},
    )  # fmt: skip
    existing = {
        "use_existing": True,
        "conf_file": f"{tmp_path}/cluster/ceph/ceph.conf",
        "tmp_dir": f"{tmp_path}/mine",
        "configurations": configurations,
        **dict.fromkeys(("mons", "mgrs", "osds_per_node", "osd_file_size"), ...),
    }
    load = {"librbdfio": {**_SHORT, "mode": "randread"}, "radosbench": {"time": 3}}
    config = write(tmp_path, "existing.yaml", existing, load)
    ceph = f"ceph -c {shlex.quote(str(existing['conf_file']))}"
    run = shlex.join(campaign(str(checkout.path), tmp_path / "archive", config))
    script = "\n".join(
        (
            shlex.join([sys.executable, str(_DEPLOY), str(deployed), "As it is", f"{tmp_path}/x"]),
            f"{ceph} config set mon mon_allow_pool_delete true",
            f"{ceph} osd pool create rados-bench-cbt 8",
            f"{run}; echo first $?; {ceph} osd pool ls | sed 's/^/after first: /'",
            f"{ceph} osd pool rm rados-bench-cbt rados-bench-cbt --yes-i-really-really-mean-it",
            f"{run}; echo second $?; {ceph} osd pool ls | sed 's/^/after second: /'",
        )
    )
    done = isolated(tmp_path, "sh", "-c", f"export PYTHONPATH={ROOT}; {script}")
    assert "first 1" in done.stdout, done.stdout + done.stderr
    assert (
        "the pool rados-bench-cbt, which upstream CBT would make anew, is there and was not made"
    ) in done.stdout + done.stderr
    assert "after first: rados-bench-cbt" in done.stdout
    assert "second 0" in done.stdout, done.stdout + done.stderr
    assert not re.findall(r"after (?:first: cbt|second: (?:cbt|rados)).*", done.stdout)
    assert {cell["state"] for cell in cells(tmp_path / "archive")} == {"finished"}


#: Starts a gateway of the cluster, makes its user, and runs a campaign against it.
_GATEWAY = """
set -eu
export CEPH_CONF={conf}
ceph auth get-or-create client.rgw.a mon 'allow rw' osd 'allow rwx' -o {base}/rgw.keyring
radosgw -n client.rgw.a -k {base}/rgw.keyring --rgw_data={base} --rgw_frontends='beast port=7480' \
    --log_file={base}/rgw.log
until curl -s -o {base}/said http://localhost:7480; do sleep 1; done
radosgw-admin user create --uid=cbt --display-name=cbt --access-key=cbt-access --secret={secret} \
    > {base}/user
"""


@needs("hsbench", "radosgw", "curl")
def test_hsbench_on_a_gateway_that_is_there(
    needs_ceph: None, checkout: Checkout, tmp_path: Path
) -> None:
    """Its output is kept, and named as not read; the gateway's key stands nowhere."""
    configurations: dict[str, Any] = {"As it is": {}}
    single = {"rbd_single_client": {**_SHORT, "mode": "randread"}}
    deployed = write(tmp_path, "deploy.yaml", {"configurations": configurations}, single)
    conf, secret = f"{tmp_path}/cluster/ceph/ceph.conf", "a-secret-of-the-gateway"
    gateway = {"driver": "s3", "urls": ["http://localhost:7480"], "access_key": "cbt-access"}
    existing = {
        "use_existing": True, "conf_file": conf, "tmp_dir": f"{tmp_path}/mine",
        "configurations": configurations,
        **dict.fromkeys(("mons", "mgrs", "osds_per_node", "osd_file_size"), ...),
    }  # fmt: skip
    load = {"client_endpoints": "gateway", "cmd_path": shutil.which("hsbench"), "duration": 3,
            "size": "64K", "threads": 2, "buckets": 1, "modes": "cxipgdx"}  # fmt: skip
    config = write(
        tmp_path, "existing.yaml", existing, {"hsbench": load},
        client_endpoints={"gateway": {**gateway, "secret_key": secret}},
    )  # fmt: skip
    script = "\n".join(
        (
            shlex.join([sys.executable, str(_DEPLOY), str(deployed), "As it is", f"{tmp_path}/x"]),
            _GATEWAY.format(conf=conf, base=tmp_path, secret=secret),
            shlex.join(campaign(str(checkout.path), tmp_path / "archive", config)),
        )
    )
    done = isolated(tmp_path, "sh", "-c", f"export PYTHONPATH={ROOT}; {script}")
    assert done.returncode == 0, done.stdout + done.stderr
    (cell,) = cells(tmp_path / "archive")
    (process,) = cell["processes"]
    assert (process["kind"], process["exit_status"]) == ("kept", 0)
    assert "not read" in done.stdout
    (output,) = cell["directory"].glob("output.0.csv.*")
    assert "PUT" in output.read_text()
    find = ["grep", "-rl", secret, str(tmp_path / "archive")]
    assert subprocess.run(find, capture_output=True, text=True, check=False).stdout == ""


def check_existing(directory: Path, engine: str) -> None:
    """A cluster that was deployed below another directory: its encryption is claimed and denied."""
    configurations = {"As it is": {"secure_messenger": {}}}
    deployed = write(
        directory, "deploy.yaml", {"configurations": configurations},
        {"rbd_single_client": {**_SHORT, "mode": "randread"}},
    )  # fmt: skip
    existing = {
        "use_existing": True,
        "conf_file": f"{directory}/cluster/ceph/ceph.conf",
        "tmp_dir": f"{directory}/mine",
        "mons": ...,
        "mgrs": ...,
        "osds_per_node": ...,
        "osd_file_size": ...,
    }
    load = {"rbd_single_client": {**_SHORT, "mode": "randread"}}
    right = write(directory, "right.yaml", {**existing, "configurations": configurations}, load)
    wrong = write(directory, "wrong.yaml", {**existing, "configurations": {"Plain": {}}}, load)
    conf = shlex.quote(str(existing["conf_file"]))
    script = "\n".join(
        (
            shlex.join([sys.executable, str(_DEPLOY), str(deployed), "As it is", f"{directory}/x"]),
            shlex.join(campaign(engine, directory / "right", right)) + "; echo right $?",
            shlex.join(campaign(engine, directory / "wrong", wrong)) + "; echo wrong $?",
            f"rbd -c {conf} ls; ceph -c {conf} osd stat",
        )
    )
    done = isolated(directory, "sh", "-c", f"export PYTHONPATH={ROOT}; {script}")
    assert "right 0" in done.stdout, done.stdout + done.stderr
    assert "wrong 1" in done.stdout, done.stdout + done.stderr
    assert "the configuration is not proved: secure_messenger" in done.stdout
    (cell,) = cells(directory / "right")
    proof = json.loads((cell["directory"] / "proof.json").read_text())
    reasons = {o["overlay"]: o["reason"] for o in proof["overlays"]}
    # Newer releases count the bytes; 16.2 shows its connections' modes alone.
    assert reasons["secure_messenger"].startswith("2 of 2 OSDs encrypted ")
    tail = done.stdout[done.stdout.rindex("wrong 1") :]
    assert "2 up" in tail, "the cluster stays"
    assert "cbt-localhost" not in tail, "the volumes of the campaign do not"
