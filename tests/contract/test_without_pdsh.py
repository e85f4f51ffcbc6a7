"""Fan out where pdsh is not installed: ssh itself, one a host, over shared connections."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.engine.embedded import common
from cbt_crypto.errors import HostError
from cbt_crypto.hosts import remote

pytestmark = pytest.mark.contract


@pytest.fixture(autouse=True)
def _no_pdsh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PDSH_PROGRAMS", ("no-such-pdsh",))
    assert remote.fan_out() == "ssh"


def test_output_comes_by_line_with_the_host_before_it(shims: Any) -> None:
    text = "echo $CBT_HOST; echo; echo a: b; echo no >&2"
    stdout, stderr = common.pdsh("c0.example.org,root@c1", text).communicate()
    assert stdout.splitlines() == [
        "c0.example.org: c0.example.org", "c0.example.org: ", "c0.example.org: a: b",
        "c1: c1", "c1: ", "c1: a: b",
    ]  # fmt: skip
    assert stderr.splitlines() == ["c0.example.org: no", "c1: no"]
    assert shims.calls("pdsh") == []
    calls = shims.calls("ssh")
    assert len(calls) == 2
    assert [call[call.index("-l") + 1] for call in calls if "-l" in call] == ["root"]
    for call in calls:
        assert {"-oBatchMode=yes", "-oControlMaster=auto"} <= set(call)


def test_each_host_has_its_own_text_and_no_list_of_processes_shows_it(shims: Any) -> None:
    stdout, _ = common.pdsh_each({"c0": "echo one", "c1": "echo two"}).communicate()
    assert sorted(stdout.splitlines()) == ["c0: one", "c1: two"]
    assert not any("echo" in word for call in shims.calls("ssh") for word in call)


def test_hosts_run_at_once(shims: Any, tmp_path: Path) -> None:
    """Each waits for the other: one after another they would never end."""
    command = f"cd {tmp_path}; touch $CBT_HOST.up; until [ -e c0.up ] && [ -e c1.up ]; do :; done"
    assert common.pdsh("c0,c1", command).wait() == 0


def test_a_failure_and_a_host_that_is_not_there_are_told(shims: Any) -> None:
    with pytest.raises(HostError, match="exit status 3"):
        common.pdsh("c0,c1", "[ $CBT_HOST = c0 ] || exit 3", False).communicate()
    shims.dead("c1")
    stdout, stderr = common.pdsh("c0,c1", "echo here").communicate()
    assert stdout == "c0: here\n"
    assert "c1: ssh: connect to host c1 port 22: No route to host" in stderr


def test_a_host_that_never_answers_is_given_up(shims: Any) -> None:
    shims.mute("c1")
    handle = common.pdsh("c0,c1", "echo here")
    stdout, _ = handle.communicate(2)
    assert (stdout, handle.timed_out) == ("c0: here\n", True)


def test_files_are_copied_there_and_back(shims: Any, tmp_path: Path) -> None:
    source, target = tmp_path / "here", tmp_path / "there"
    source.write_text("content")
    source.chmod(0o600)
    assert common.pdcp("c0,root@c1", "", str(source), str(target)).wait() == 0
    assert target.read_text() == "content"
    assert target.stat().st_mode & 0o777 == 0o600, "a key stays a secret"
    (tmp_path / "in").mkdir()
    assert common.rpdcp("c0.example.org,root@c1", "", str(target), f"{tmp_path}/in").wait() == 0
    found = sorted(path.name for path in (tmp_path / "in").iterdir())
    assert found == ["there.c0.example.org", "there.c1"]
    ends = [call[-2:] for call in shims.calls("scp")]
    assert [str(source), f"root@c1:{target}"] in ends


def test_a_run_directory_is_synced_from_every_host(
    own_bench: Callable[..., Any], tmp_path: Path
) -> None:
    made = own_bench()
    run_dir = made.tmp_dir / "run" / "id-1"
    (run_dir / "collectl").mkdir(parents=True)
    (run_dir / "collectl" / "x.raw.gz").write_text("raw")
    (run_dir / "json_output.0").write_text("{}")
    made.engine.common.sync_files(str(run_dir), str(tmp_path / "kept"))
    hosts = ("head", "c0", "c1", "o0", "o1")
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {
        *(f"json_output.0.{host}" for host in hosts),
        *(f"collectl.{host}" for host in hosts),
    }
