"""Exit status 2: what will not do is said in a sentence, and nothing has been touched."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.cluster_overlays.base import Overlay
from cbt_crypto.main import cbt

pytestmark = pytest.mark.unit


def refused(host: Any, *arguments: Any) -> str:
    """What was said, after a look that nothing has changed."""
    before = host.snapshot()
    result = host.cbt(*arguments)
    assert result.exit_code == 2, result.output
    assert host.snapshot() == before
    assert "Traceback" not in result.output
    # What this machine's load is, for one, is said on the way.
    said = ("engine: ", "warning: ")
    lines = [line for line in result.output.splitlines() if not line.startswith(said)]
    return "\n".join(lines)


def test_no_such_file(host: Any) -> None:
    assert refused(host, host.directory / "no.yaml") == (
        f"{host.directory}/no.yaml: no such file; name a campaign's YAML file"
    )


def test_no_yaml(host: Any) -> None:
    path = host.directory / "c.yaml"
    path.write_text("cluster: [")
    assert refused(host, path).startswith(f"{path}:1: not YAML: ")


def test_an_unknown_option_of_an_overlay(host: Any) -> None:
    path = host.write(cluster={"configurations": {"A": {"secure_messenger": {"mode": "crc"}}}})
    said = refused(host, path)
    assert "cluster.configurations.A.secure_messenger.mode: unknown key" in said


def test_the_option_for_the_archive_is_missing(host: Any) -> None:
    result = CliRunner().invoke(cbt, [str(host.write())])
    assert result.exit_code == 2
    assert "Missing option '-a': name a directory for the results." in result.output


def test_a_host_that_does_not_resolve(host: Any, shims: Any) -> None:
    path = host.write(cluster={"clients": ["localhost", "nowhere.invalid"]})
    assert refused(host, path) == (
        "nowhere.invalid: this name does not resolve; fix it in the file, or in DNS or /etc/hosts"
    )
    assert shims.calls("pdsh") == []


def test_a_host_that_cannot_be_reached(host: Any, shims: Any) -> None:
    shims.dead("127.9.9.9")
    path = host.write(cluster={"clients": ["127.9.9.9"]})
    assert refused(host, path) == (
        "127.9.9.9: cannot be reached: ssh: connect to host 127.9.9.9 port 22: No route to host; "
        "ssh to it must work without a password"
    )


def test_whoever_is_to_be_notified_is_told_of_a_refusal_too(host: Any, shims: Any) -> None:
    shims.dead("127.9.9.9")
    told = host.directory.parent / "told"
    program = host.directory.parent / "tell"
    program.write_text(f'#!/bin/sh\necho "$@" > {told}\nexit 7\n')
    program.chmod(0o755)
    path = host.write(cluster={"clients": ["127.9.9.9"]})
    said = refused(host, path, "--notify", f"{program} 'a word'")
    archive, status = told.read_text().removeprefix("a word ").split()
    assert status == "2" and Path(archive).is_absolute()
    assert f"--notify: {program}: exit status 7" in said


def test_a_notification_that_cannot_be_is_refused_at_once(host: Any) -> None:
    path = host.write()
    assert "there is no such program" in refused(host, path, "--notify", "no-such-program x")
    assert "No closing quotation" in refused(host, path, "--notify", "echo 'x")


def test_ssh_is_missing_and_a_host_is_not_this_one(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = shutil.which
    monkeypatch.setattr(
        shutil, "which", lambda name: None if name in ("pdsh", "ssh", "scp") else present(name)
    )
    said = refused(host, host.write(cluster={"clients": ["127.9.9.9"]}))
    assert said.splitlines()[:2] == [
        "ssh is missing on this machine and 127.9.9.9 is not this machine; install openssh-client",
        "scp is missing on this machine and 127.9.9.9 is not this machine; install openssh-client",
    ]


def test_fio_without_the_rbd_engine(host: Any) -> None:
    host.programs("fio", 'echo "Available IO engines:"; echo "	libaio"')
    assert refused(host, host.write()) == (
        "localhost: fio has no rbd engine; install one that has (dnf: fio-engine-rbd)"
    )


def test_everything_that_is_missing_is_named_at_once(host: Any) -> None:
    cluster = {"ceph_osd_cmd": "/opt/ceph osd", "ceph_mgr_cmd": "no-such-mgr"}
    path = host.write(cluster=cluster, benchmarks={"rbd_single_client": {"fio_cmd": "no-such-fio"}})
    assert refused(host, path).splitlines() == [
        "localhost: no-such-mgr is missing; name it in the file by its whole path",
        "localhost: /opt/ceph osd is missing; name it in the file by its whole path",
        "localhost: no-such-fio is missing; name it in the file by its whole path",
    ]


def test_a_ceph_without_its_python_module(host: Any) -> None:
    host.programs("fake-python", "exit 1")
    assert refused(host, host.write()).splitlines() == [
        "localhost: Python's rados module is missing; install python3-rados",
        "cbt-crypto check --fix-commands FILE prints the commands that install what is missing",
    ]


def test_perf_only_where_it_is_asked_for(host: Any, no_overlays: None) -> None:
    perf = {"nodes": ["clients"], "perf_cmd": "no-such-perf"}
    said = refused(host, host.write(monitoring_profiles={"perf": perf}))
    assert said == "localhost: no-such-perf is missing; name it in the file by its whole path"


def test_authentication_off_under_the_secure_messenger(host: Any) -> None:
    conf = host.directory / "ceph.conf"
    conf.write_text("[global]\n   auth client required = none\n")
    configurations = {"Plain": {}, "Secure": {"secure_messenger": {}}}
    path = host.write(cluster={"configurations": configurations})
    said = refused(host, path, "-c", conf)
    assert said.startswith(f'{conf}: with configuration "Secure": ceph.conf sets ')
    assert "auth_client_required = none in [global]" in said


def test_a_ceph_conf_that_is_not_there(host: Any) -> None:
    assert refused(host, host.write(cluster={"conf_file": "/no/ceph.conf"})) == (
        "/no/ceph.conf: no such ceph.conf; conf_file or -c is its path"
    )


def test_a_tmp_dir_of_somebody_else(host: Any) -> None:
    host.tmp_dir.mkdir()
    (host.tmp_dir / "precious").write_text("data")
    assert refused(host, host.write()) == (
        f"localhost: {host.tmp_dir} is not empty and was not made by a campaign; "
        "name another tmp_dir"
    )


def test_a_device_that_is_none(host: Any) -> None:
    cluster = {"osd_file_size": ..., "osd_devices": [f"{host.directory}/disk"]}
    said = refused(host, host.write(cluster=cluster))
    assert f"localhost: {host.directory}/disk is not a block device there; fix osd_d" in said


def test_an_archive_with_something_else_in_it(host: Any) -> None:
    host.archive.mkdir()
    (host.archive / "thesis.tex").write_text("...")
    # As below `/`: what need not be looked at, and could not be.
    (host.archive / "cwd").symlink_to("/")
    assert refused(host, host.write()) == (
        f"{host.archive}: is not empty and holds no campaign; name a new directory with -a"
    )


@pytest.mark.parametrize("above", ["", ".."])
def test_an_archive_in_the_directory_that_is_removed(host: Any, above: str) -> None:
    tmp_dir = (host.archive / above).resolve()
    assert refused(host, host.write(cluster={"tmp_dir": str(tmp_dir)})) == (
        f"{host.archive}: is in tmp_dir, {tmp_dir}, which is removed at the end; name another "
        "archive with -a"
    )


def test_an_archive_that_is_a_file(host: Any) -> None:
    host.archive.write_text("...")
    assert refused(host, host.write()) == (
        f"{host.archive}: is not a directory; name another archive with -a"
    )


def test_an_archive_of_another_file(host: Any) -> None:
    plan = host.archive / "results" / "plan.json"
    plan.parent.mkdir(parents=True)
    plan.write_text(json.dumps({"format": 1, "title": "other", "document": {"cluster": {}}}))
    assert refused(host, host.write()) == (
        f"{host.archive}: was written for another campaign file (other), with which this one has "
        "no cell in common; name a new directory with -a"
    )


@pytest.mark.parametrize("place", ["results", "results/00000000", "results/journal.jsonl"])
def test_an_archive_with_a_link_out_of_it(host: Any, place: str) -> None:
    outside = host.directory / "outside"
    outside.mkdir()
    path = host.archive / place
    path.parent.mkdir(parents=True)
    path.symlink_to(outside)
    assert refused(host, host.write()) == f"{path}: is a link out of the archive; remove it"
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("option", ["--again", "--only"])
@pytest.mark.parametrize("pattern", ["", " "])
def test_a_pattern_that_is_a_variable_without_a_value(host: Any, option: str, pattern: str) -> None:
    """It was in every label, so that all that was finished was set aside and measured again."""
    host.archive.mkdir()
    said = refused(host, host.write(), option, pattern)
    assert said.startswith(
        f'{option} "{pattern}" matches no cell; `cbt-crypto plan FILE` lists them'
    )


def test_again_that_matches_nothing(host: Any) -> None:
    host.archive.mkdir()
    said = refused(host, host.write(), "--again", "no such cell")
    assert said.startswith(
        '--again "no such cell" matches no cell; `cbt-crypto plan FILE` lists them'
    )


def test_an_archive_that_another_run_holds(host: Any) -> None:
    host.archive.mkdir()
    lock = host.archive / ".lock"
    lock.write_text("process 4711 on node0")
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        said = refused(host, host.write())
    assert said == f"{host.archive}: is in use by process 4711 on node0; wait for it or end it"


def test_a_monitor_s_name_that_nobody_knows(host: Any) -> None:
    mons = {"head": ..., "localhost": {"a": "nobody.invalid"}}
    said = refused(host, host.write(cluster={"mons": mons}))
    assert said.startswith("cluster.mons: nobody.invalid: has no IPv4 address")


def test_only_that_matches_nothing(host: Any) -> None:
    said = refused(host, host.write(), "--only", "no such cell")
    assert said.startswith(
        '--only "no such cell" matches no cell; `cbt-crypto plan FILE` lists them'
    )


def test_a_change_that_rebuild_never_forbids(
    host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type("Under", (Overlay,), {"name": "under", "__annotations__": {}})
    monkeypatch.setitem(OVERLAYS, "under", kind)
    cluster = {"configurations": {"A": {}, "B": {"under": {}}}, "rebuild": "never"}
    said = refused(host, host.write(cluster=cluster))
    assert '"A" cannot become "B" without a rebuild' in said


def test_the_command_itself_ends_with_2(host: Any) -> None:
    """Not by click's test runner, but as people run it."""
    command = Path(__file__).parents[3] / "cbt.py"
    done = subprocess.run(
        [sys.executable, str(command), "no.yaml", "-a", "archive"],
        check=False, capture_output=True, text=True, cwd=host.directory,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "no.yaml: no such file; name a campaign's YAML file\n"
    assert not (host.directory / "archive").exists()
