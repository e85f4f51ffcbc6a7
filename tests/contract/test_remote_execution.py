"""`common`: what runs where, how its output comes back, and what is copied."""

from __future__ import annotations

import os
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.engine.upstream import execution
from cbt_crypto.errors import HostError
from cbt_crypto.hosts import fetch, remote

pytestmark = pytest.mark.contract

Make = Callable[..., Any]


def test_output_comes_by_line_with_the_host_before_it(bench: Make) -> None:
    common = bench().engine.common
    stdout, stderr = common.pdsh("c0,c1", "echo one; echo; echo a: b; echo no >&2").communicate()
    for host in ("c0", "c1"):
        own = [line for line in stdout.splitlines() if line.startswith(f"{host}: ")]
        assert own == [f"{host}: one", f"{host}: ", f"{host}: a: b"]
        assert f"{host}: no" in stderr.splitlines()


def test_users_stand_before_hosts_and_are_ssh_s(own_bench: Make, shims: Any) -> None:
    common = own_bench().engine.common
    stdout, _ = common.pdsh("root@c0,bench@c1", "echo $CBT_HOST").communicate()
    assert sorted(stdout.splitlines()) == ["c0: c0", "c1: c1"]
    users = {call[call.index("-l") + 1] for call in shims.calls("ssh")}
    assert users == {"root", "bench"}


def test_one_pdsh_for_all_hosts(own_bench: Make, shims: Any) -> None:
    own_bench().engine.common.pdsh("c0,c1,o0,o1", "true").communicate()
    (call,) = shims.calls("pdsh")
    assert call[call.index("-w") + 1] == "c0,c1,o0,o1"
    assert int(call[call.index("-f") + 1]) >= 4


def test_local_names_bypass_pdsh(
    own_bench: Make, shims: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = own_bench().engine.common
    monkeypatch.setattr(remote, "local_names", lambda: frozenset({"c0"}))
    stdout, _ = common.pdsh("c0", "echo here").communicate()
    assert (stdout, shims.calls()) == ("c0: here\n", [])
    stdout, _ = common.pdsh("c0,c1", "echo here").communicate()
    assert sorted(stdout.splitlines()) == ["c0: here", "c1: here"]
    (call,) = shims.calls("pdsh")
    assert call[call.index("-w") + 1] == "c1"


def test_a_name_of_this_machine_with_another_user_does_not(
    own_bench: Make, shims: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "local_names", lambda: frozenset({"c0"}))
    own_bench().engine.common.pdsh("somebody-else@c0", "true").communicate()
    assert len(shims.calls("pdsh")) == 1


def test_hosts_run_at_once(own_bench: Make, tmp_path: Path) -> None:
    """Each waits for the other: one after another they would never end."""
    command = f"cd {tmp_path}; touch $CBT_HOST.up; until [ -e c0.up ] && [ -e c1.up ]; do :; done"
    assert own_bench().engine.common.pdsh("c0,c1", command).wait() == 0


def test_a_failure_is_told_when_asked_for(own_bench: Make) -> None:
    common = own_bench().engine.common
    handle = common.pdsh("c0,c1", "[ $CBT_HOST = c0 ] || exit 3")
    assert handle.wait() != 0
    assert handle.communicate() == ("", "")
    with pytest.raises(HostError, match="exit status 3"):
        common.pdsh("c0,c1", "[ $CBT_HOST = c0 ] || exit 3", False).communicate()


def test_a_handle_can_be_asked_twice(own_bench: Make) -> None:
    handle = own_bench().engine.common.pdsh("c0", "echo once")
    assert handle.communicate() == handle.communicate() == ("c0: once\n", "")


def test_no_hosts_is_no_call(own_bench: Make, shims: Any) -> None:
    assert own_bench().engine.common.pdsh("", "true").communicate() == ("", "")
    assert shims.calls() == []


def test_a_file_is_copied_to_every_host_by_one_call(
    own_bench: Make, shims: Any, tmp_path: Path
) -> None:
    source, target = tmp_path / "here", tmp_path / "there"
    source.write_text("content")
    source.chmod(0o600)
    assert own_bench().engine.common.pdcp("c0,root@c1", "", str(source), str(target)).wait() == 0
    assert target.read_text() == "content"
    assert target.stat().st_mode & 0o777 == 0o600, "a key stays a secret"
    (call,) = shims.calls("pdcp")
    assert call[call.index("-w") + 1] == "c0,root@c1"


def test_here_a_copy_needs_no_pdcp(
    own_bench: Make, shims: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "local_names", lambda: frozenset({"c0"}))
    common = own_bench().engine.common
    monkeypatch.setattr(remote, "local_names", lambda: frozenset({"c0"}))
    source, target = tmp_path / "here", tmp_path / "there"
    source.write_text("content")
    common.pdcp("c0", "", str(source), str(target)).communicate()
    common.pdcp("c0", "", str(source), str(source)).communicate()
    assert target.read_text() == source.read_text() == "content"
    assert shims.calls() == []


def test_files_come_back_with_their_host_s_name(
    own_bench: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = own_bench().engine.common
    monkeypatch.setattr(remote, "local_names", lambda: frozenset({"o0"}))
    (tmp_path / "result").write_text("x")
    (tmp_path / "in").mkdir()
    common.rpdcp("c0.example.org,root@c1,o0", "", f"{tmp_path}/result", f"{tmp_path}/in").wait()
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == [
        "result.c0.example.org",
        "result.c1",
        "result.o0",
    ]


def test_a_run_directory_is_synced_from_every_host(own_bench: Make, tmp_path: Path) -> None:
    made = own_bench()
    run_dir = made.tmp_dir / "run" / "id-1"
    (run_dir / "collectl").mkdir(parents=True)
    (run_dir / "collectl" / "x.raw.gz").write_text("raw")
    (run_dir / "json_output.0").write_text("{}")
    local = tmp_path / "kept"
    (local / "collectl.c0").mkdir(parents=True)
    (local / "collectl.c0" / "old").touch()
    made.engine.common.sync_files(str(run_dir), str(local))
    hosts = ("head", "c0", "c1", "o0", "o1")
    assert {path.name for path in local.iterdir()} == {
        *(f"json_output.0.{host}" for host in hosts),
        *(f"collectl.{host}" for host in hosts),
    }
    assert [path.name for path in (local / "collectl.c0").iterdir()] == ["x.raw.gz"]


def test_nothing_to_sync_is_an_error_that_names_the_host(own_bench: Make, tmp_path: Path) -> None:
    made = own_bench()
    with pytest.raises(HostError, match=r"^head: copy .* from it: nothing came"):
        made.engine.common.sync_files(f"{made.tmp_dir}/nothing", str(tmp_path / "kept"))


def evil_tar(tmp_path: Path) -> str:
    """In place of a host's tar: files that lead elsewhere, or are more than files."""
    stream = tmp_path / "stream.tar"
    with tarfile.open(stream, "w") as tar:
        for name, kind in (
            ("run", tarfile.DIRTYPE),
            ("run/link", tarfile.SYMTYPE),
            ("run/output.0", tarfile.REGTYPE),
            ("run/../../evil", tarfile.REGTYPE),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.linkname = kind, 0o6777, "/etc"
            tar.addfile(info)  # fmt: skip
    return f"cat {stream}"


@pytest.mark.parametrize("pattern", ["/*", ""])
def test_upstream_s_files_come_as_checked_streams(
    upstream_bench: Make, tmp_path: Path, programs: Callable[[str, str], Path], shims: Any,
    pattern: str,
) -> None:  # fmt: skip
    """rpdcp's receiver wrote where, and what, a compromised host said."""
    made = upstream_bench()
    run, local = tmp_path / "run", tmp_path / "in"
    run.mkdir()
    local.mkdir()
    (run / "output.0").write_text("x")
    (run / "sub").mkdir()
    module = sys.modules["common"]
    module.sync_files(f"{run}{pattern}", str(local))
    hosts = ("head", "c0", "c1", "o0", "o1")
    kept = {path.name: path for path in local.iterdir()}
    if pattern:
        assert set(kept) == {f"{name}.{host}" for name in ("output.0", "sub") for host in hosts}
        assert kept["output.0.c1"].read_text() == "x"
    else:
        assert {path.name for path in kept["run.c1"].iterdir()} == {"output.0", "sub"}
    assert shims.calls("rpdcp") == []
    programs("tar", evil_tar(tmp_path))
    with pytest.raises(HostError, match=r"^c0: copy .* nothing came: .*name that leads elsewhere"):
        made.engine.common.sync_files(str(run), str(tmp_path / "evil in"))
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith("evil.")]
    assert not list((tmp_path / "evil in").iterdir())


def test_upstream_s_files_that_do_not_come_in_time_are_a_sentence(
    upstream_bench: Make, tmp_path: Path, programs: Callable[[str, str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It was a traceback."""
    common = upstream_bench().engine.common
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(fetch, "COLLECT_S", 2)
    programs("tar", "exec sleep 10")
    with pytest.raises(HostError, match="nothing came: not all came within 2 s"):
        common.sync_files(str(tmp_path / "run"), str(tmp_path / "in"))


def test_upstream_s_pdsh_says_no_more_than_an_answer(
    upstream_bench: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A host's output was read whole into memory."""
    monkeypatch.setattr(execution, "LONGEST", 1 << 20)
    common = upstream_bench().engine.common
    began = time.monotonic()
    out, _ = common.pdsh_each({"c0": "yes | head -c 20000000", "c1": "echo fine"}).communicate(60)
    assert "c1: fine\n" in out and len(out) < 4 << 20
    assert time.monotonic() - began < 50


def test_directories_are_made_and_removed_on_every_host(own_bench: Make, shims: Any) -> None:
    made = own_bench()
    path = made.tmp_dir / "run" / "a b"
    made.engine.common.make_remote_dir(str(path))
    assert path.is_dir()
    made.engine.common.clean_remote_dir(str(path))
    assert not path.exists()
    hosts = {call[call.index("-w") + 1] for call in shims.calls("pdsh")}
    assert hosts == {"head,c0,c1,o0,o1"}


@pytest.mark.parametrize("path", ["/", "/tmp", "{0}", "{0}/", "{0}/../x", "{0}x/run", "run", ""])
def test_nothing_outside_tmp_dir_is_ever_removed(bench: Make, shims: Any, path: str) -> None:
    made = bench()
    with pytest.raises(ValueError, match="is not below tmp_dir"):
        made.engine.common.clean_remote_dir(path.format(made.tmp_dir))
    assert shims.calls() == []


def test_a_local_directory_with_its_parents(bench: Make, tmp_path: Path) -> None:
    common = bench().engine.common
    for _ in range(2):
        common.mkdir_p(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir()


def test_connections_are_shared_and_given_up_in_time(own_bench: Make, shims: Any) -> None:
    own_bench().engine.common.pdsh("c0", "true").communicate()
    (call,) = shims.calls("ssh")
    assert {"-oBatchMode=yes", "-oControlMaster=auto"} <= set(call)
    (control,) = [word for word in call if word.startswith("-oControlPath=")]
    assert control.endswith("/%C")
    assert Path(control.partition("=")[2]).parent.stat().st_mode & 0o077 == 0
    timeouts = [word for word in call if "ConnectTimeout" in word or "ServerAlive" in word]
    assert len(timeouts) == 3
    assert os.environ.get("SSH_ASKPASS_REQUIRE") != "force"
