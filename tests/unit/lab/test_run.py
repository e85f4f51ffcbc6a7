from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.lab import access, run
from cbt_crypto.lab.command import lab as commands
from cbt_crypto.lab.run import LabCampaign
from cbt_crypto.lab.shape import Lab, Steps, lab_dir

pytestmark = pytest.mark.unit


def write_campaign(path: Path, **cluster: object) -> Path:
    section = {
        "head": "node0",
        "clients": ["node0"],
        "osds": ["node1"],
        "mons": {"node0": {"a": "node0"}},
        "mgrs": {"node0": {"x": None}},
        "replication": 1,
        **cluster,
    }
    benchmarks = {"rbd_single_client": {"op_size": 4096, "mode": "randread", "time": 5}}
    path.write_text(yaml.safe_dump({"cluster": section, "benchmarks": benchmarks}))
    return path


def attempt(lab: Lab, job: LabCampaign) -> str:
    with pytest.raises(UsageError) as error:
        run.run(lab, job, Steps(Console(file=StringIO())))
    return str(error.value)


def test_the_head_node_gets_the_campaign_under_its_own_name(tmp_path: Path) -> None:
    job = LabCampaign(tmp_path / "my story.yaml", tmp_path / "archive", only=("LUKS", "4K"))
    assert set(job.files()) == {"cbt.py", "cbt_crypto", "my story.yaml"}
    assert job.command() == [
        *("python3", "cbt.py", "--no-report", "-a", "/root/archive"),
        *("--only", "LUKS", "--only", "4K", "my story.yaml"),
    ]


def test_a_ceph_conf_and_a_checkout_are_carried_and_named(tmp_path: Path) -> None:
    job = LabCampaign(
        tmp_path / "c.yaml", tmp_path, conf=tmp_path / "my.conf", checkout=tmp_path / "cbt"
    )
    assert job.files()["ceph.conf"] == tmp_path / "my.conf"
    assert job.files()["cbt"] == tmp_path / "cbt"
    assert job.command()[5:] == ["-c", "ceph.conf", "--cbt", "cbt", "c.yaml"]


def test_hosts_that_the_lab_lacks_are_named(tmp_path: Path, make_lab: Callable[..., Lab]) -> None:
    config = write_campaign(tmp_path / "c.yaml", osds=["node7"])
    sentence = attempt(make_lab(), LabCampaign(config, tmp_path / "archive"))
    assert "lab trial has no host node7" in sentence and "node0, node1, node2" in sentence


def test_a_ceph_conf_that_is_not_there_is_named(
    tmp_path: Path, make_lab: Callable[..., Lab]
) -> None:
    config = write_campaign(tmp_path / "c.yaml", conf_file=str(tmp_path / "gone.conf"))
    assert "gone.conf: no such ceph.conf; conf_file or -c is its path" in attempt(
        make_lab(), LabCampaign(config, tmp_path / "archive")
    )


def test_somebody_else_s_directory_is_not_an_archive(
    tmp_path: Path, make_lab: Callable[..., Lab]
) -> None:
    config = write_campaign(tmp_path / "c.yaml")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    assert "is not empty" in attempt(make_lab(), LabCampaign(config, tmp_path / "photos"))


def test_two_runs_on_one_lab_do_not_mix(tmp_path: Path, make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    config = write_campaign(tmp_path / "c.yaml")
    with run.alone(lab):
        assert "another lab run is at work" in attempt(
            lab, LabCampaign(config, tmp_path / "archive")
        )


def test_what_another_lab_is_copying_back_is_not_cleared(
    tmp_path: Path, make_lab: Callable[..., Lab]
) -> None:
    """A run on another lab, into the same archive, removed the results that were on their way."""
    config, archive = write_campaign(tmp_path / "c.yaml"), tmp_path / "archive"
    with run.archive_locked(archive):
        incoming = archive / ".results.incoming" / "results"
        incoming.mkdir(parents=True)
        assert "archive: is in use by" in attempt(make_lab(), LabCampaign(config, archive))
        assert incoming.exists()


@pytest.mark.parametrize("words", [["down"], ["up", "--kind", "vm"]])
def test_a_lab_is_not_ended_under_a_run(
    make_lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """`lab down` in another terminal killed it, with all results, which node0 alone had."""
    monkeypatch.setattr("cbt_crypto.lab.vm.check_machine", lambda shape: None)
    monkeypatch.delattr("cbt_crypto.lab.image.provide")
    lab = make_lab().model_copy(update={"directory": lab_dir("default")})
    lab.directory.mkdir(mode=0o700, parents=True)
    (lab.directory / "disk").touch()
    with run.alone(lab):
        done = CliRunner().invoke(commands, words)
    said = f"{done.exception}{done.output}"
    assert "a lab run is at work on lab default; wait until it ends, or end it" in said
    assert (lab.directory / "disk").exists()
    assert CliRunner().invoke(commands, ["down"]).exit_code == 0
    assert not lab.directory.exists()


def test_what_a_killed_run_left_on_the_node_for_another_archive_stays(
    tmp_path: Path, make_lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run into another archive removed it: hours of results."""
    config = write_campaign(tmp_path / "c.yaml")
    put: list[str] = []
    monkeypatch.setattr(run, "put", lambda lab, node, directory, files: put.append(directory))
    monkeypatch.setattr(access, "run", lambda lab, node, script: f"{tmp_path}/first one\n")
    sentence = attempt(make_lab(), LabCampaign(config, tmp_path / "second"))
    assert f"-a '{tmp_path}/first one'" in sentence and put == []
    assert "cbt-crypto lab ssh --name trial node0 rm /root/campaign/origin" in sentence


def test_results_stay_known_where_a_second_signal_ends_this_side_alone(
    tmp_path: Path, make_lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run found no `origin`, and removed what the campaign had gone on to measure."""

    def interrupted(lab: Lab, job: LabCampaign) -> int:
        raise KeyboardInterrupt

    scripts: list[str] = []

    def noted(lab: Lab, node: object, script: str) -> str:
        scripts.append(script)
        return ""

    monkeypatch.setattr(run, "put", lambda *_: None)
    monkeypatch.setattr(run, "follow", interrupted)
    monkeypatch.setattr(access, "run", noted)
    lab = make_lab()
    job = LabCampaign(write_campaign(tmp_path / "c.yaml"), tmp_path / "archive")
    with pytest.raises(RunError, match="the campaign goes on on node0; the same command ends it"):
        run.run(lab, job, Steps(Console(file=StringIO())))
    assert not any("rm -f" in script for script in scripts)
    monkeypatch.setattr(run, "follow", lambda lab, job: 1)
    assert run.run(lab, job, Steps(Console(file=StringIO()))) == 1
    assert scripts[-1] == "rm -f /root/campaign/origin"


def test_a_file_that_cannot_be_carried_in_is_named(
    make_lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unreadable file of the archive ended `lab run` in a traceback."""
    monkeypatch.setattr(run.access, "command", lambda *_: ["cat"])

    def pack(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/archive/results/theirs")

    monkeypatch.setattr(run, "pack", pack)
    lab = make_lab()
    with pytest.raises(UsageError, match=r"^/archive/results/theirs: cannot be read; "):
        run.put(lab, lab.head, "/root/archive", {})
