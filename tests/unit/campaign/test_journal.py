"""What the journal keeps of a run, and what is read from a damaged or a misleading one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from cbt_crypto import __version__
from cbt_crypto.cli import cbt_crypto
from cbt_crypto.engine.choice import embedded
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.devices.rbd_images import made_for
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.plan.file import Campaign, read_campaign
from cbt_crypto.plan.layout import site_of
from cbt_crypto.run.journal import (
    Journal,
    directory,
    forget,
    left_over,
    own_left_over,
    path_of,
    places_of,
)
from cbt_crypto.run.locks import hosts_held, this_run

pytestmark = pytest.mark.unit

Make = Callable[..., Campaign]


def begun(archive: Path, campaign: Campaign, run: str = "r1") -> Journal:
    journal = Journal(archive, run)
    journal.begin(campaign, {"pid": 1}, embedded())
    return journal


def test_a_run_that_ended_leaves_nothing(tmp_path: Path, campaign_of: Make) -> None:
    journal = begun(tmp_path, campaign_of())
    journal.deploy("Default", "rebuild")
    assert [one.run for one in left_over(tmp_path)] == ["r1"]
    journal.end()
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("serial", ["x" * (33 << 20), "\ud800"], ids=["endless", "no text"])
def test_what_a_host_says_of_a_device_can_be_read_again(
    tmp_path: Path, campaign_of: Make, serial: str
) -> None:
    """A run was noted in a file too large to be read: after a kill, no run was known of."""
    journal = Journal(tmp_path, "r1")
    noted = {"head": {"/dev/x": {"identity": {"serial": serial}, "uuid": "u", "wipe": False}}}
    with pytest.raises(UsageError, match="hosts say more of themselves than can be noted"):
        journal.begin(campaign_of(), {"pid": 1}, embedded(), noted)
    begun(tmp_path, campaign_of())
    with pytest.raises(UsageError, match="hosts say more of themselves than can be noted"):
        journal.keep_ways_back({"tuned": {"head": serial}})
    assert [one.run for one in own_left_over(tmp_path)] == ["r1"]
    journal.end()


def test_an_archive_that_was_moved_is_not_made_anew(tmp_path: Path, campaign_of: Make) -> None:
    """The journal's last line made a directory of one file where the archive had been."""
    archive = tmp_path / "archive"
    journal = begun(archive, campaign_of())
    archive.rename(tmp_path / "moved")
    journal.end()
    with pytest.raises(FileNotFoundError):
        journal.deploy("LUKS", "rebuild")
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["moved"]
    assert own_left_over(archive) == []


def test_what_is_where(campaign_of: Make) -> None:
    campaign = campaign_of(
        cluster={
            "osd_devices": ["/dev/a", "/dev/b"],
            "osds_per_node": 2,
            "configurations": {"A": {}, "B": {"luks": {}}},
        }
    )
    places = places_of(campaign)
    assert list(places) == ["head", "o0", "o1", "c0", "c1"]
    assert places["o1"] == {
        "tmp_dir": "/var/lib/cbt-crypto",
        "mark": "CBT_CRYPTO_MARK=/var/lib/cbt-crypto@o1",
        "devices": ["/dev/a", "/dev/b"],
        "overlays": ["luks"],
    }
    assert places["head"]["devices"] == []


def test_the_campaign_of_then_comes_back(tmp_path: Path, campaign_of: Make) -> None:
    campaign = campaign_of(cluster={"tmp_dir": "/srv/other"})
    begun(tmp_path, campaign)
    (deployment,) = left_over(tmp_path)
    assert deployment.campaign(tmp_path).cluster == campaign.cluster
    assert "head: processes with CBT_CRYPTO_MARK=/srv/other@head, /srv/other" in (
        deployment.describe()
    )


def test_a_line_that_was_cut_short_is_no_line(tmp_path: Path, campaign_of: Make) -> None:
    journal = begun(tmp_path, campaign_of())
    with path_of(tmp_path).open("a") as file:
        file.write('{"run": "r2", "event": "beg')
    journal.end()
    assert left_over(tmp_path) == []
    begun(tmp_path, campaign_of(), "r3")
    assert [one.run for one in left_over(tmp_path)] == ["r3"]


VALUES = st.none() | st.integers() | st.text(max_size=4) | st.lists(st.text(max_size=2), max_size=2)


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "run": VALUES, "event": st.sampled_from(["begin", "end", "deploy"]) | VALUES,
                "by": VALUES, "hosts": VALUES | st.dictionaries(st.text(max_size=2), VALUES),
                "time": VALUES, "document": VALUES,
            },
        ),
        max_size=4,
    )
)  # fmt: skip
def test_no_journal_is_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, entries: list[dict[str, Any]]
) -> None:
    archive = tmp_path_factory.mktemp("archive")
    path_of(archive).parent.mkdir()
    path_of(archive).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    for deployment in left_over(archive):
        deployment.describe()
        with pytest.raises(UsageError):
            deployment.campaign(archive)


def test_a_pipe_for_a_journal(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    os.mkfifo(path_of(tmp_path))
    with pytest.raises(UsageError, match="is not a regular file"):
        left_over(tmp_path)


@pytest.mark.parametrize("words", [["."], [""], ["archive/results"], ["empty"]])
def test_cleanup_of_what_is_no_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """It said that nothing was left on any host, while a killed run's disks were still ours."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("/usr")  # It is not to be blamed, nor removed.
    path_of(tmp_path / "archive").parent.mkdir(parents=True)
    path_of(tmp_path / "archive").write_text('{"event": "begin", "run": "1"}\n')
    done = CliRunner().invoke(cbt_crypto, ["cleanup", "--yes", *words])
    assert done.exit_code == 2 and "is no archive of a campaign" in done.output
    assert len(done.output.splitlines()) == 1


def test_cleanup_says_that_nothing_is_left(tmp_path: Path) -> None:
    path_of(tmp_path).parent.mkdir()
    path_of(tmp_path).touch()
    done = CliRunner().invoke(cbt_crypto, ["cleanup", str(tmp_path)])
    assert (done.exit_code, done.output) == (
        0, f"{tmp_path}: nothing is left on any host that its journal knows of\n"
    )  # fmt: skip
    none = CliRunner().invoke(cbt_crypto, ["cleanup", str(tmp_path / "none")])
    assert none.exit_code == 2


def cleanup(*words: Any) -> Any:
    return CliRunner().invoke(cbt_crypto, ["cleanup", *map(str, words)])


def test_cleanup_takes_down_what_a_dead_run_left(
    tmp_path: Path, host: Any, no_overlays: None
) -> None:
    """On this machine: a directory that is marked as ours goes, another stays."""
    campaign = read_campaign(host.write())
    begun(host.archive, campaign)
    left_behind(host)
    asked = cleanup(host.archive)
    assert asked.exit_code != 0 and "add --yes" in asked.output and host.tmp_dir.exists()
    planned = cleanup("--plan", host.archive)
    assert planned.exit_code == 0 and host.tmp_dir.exists()
    assert f"localhost: directory {host.tmp_dir}" in planned.output.splitlines()[1]
    assert len(planned.output.splitlines()) <= 6 and "remove tmp_dir" not in planned.output
    assert "remove tmp_dir" in cleanup("--plan", "-v", host.archive).output
    done = cleanup("--yes", host.archive)
    assert done.exit_code == 0, done.output
    assert "tearing down what a run that ended early" in done.output
    assert not host.tmp_dir.exists()
    assert left_over(host.archive) == own_left_over(host.archive) == []


def test_what_one_run_left_keeps_nothing_of_another_s(host: Any, no_overlays: None) -> None:
    """Cleanup ended at the first of an archive's runs whose rest it could not remove."""
    others = read_campaign(host.write(cluster={"tmp_dir": str(host.directory / "others")}))
    begun(host.archive, others, "r1")
    begun(host.archive, read_campaign(host.write()), "r2")
    left_behind(host)
    remote = Remote(embedded().common, others.cluster.tmp_dir)
    with hosts_held(remote, site_of(others.cluster), "living", this_run(host.directory)):
        done = cleanup("--yes", host.archive)
    assert done.exit_code == 2 and "is in use by" in done.output, done.output
    assert not host.tmp_dir.exists()
    assert [one.run for one in own_left_over(host.archive)] == ["r1"]


def left_behind(host: Any) -> None:
    (host.tmp_dir / "ceph").mkdir(parents=True, mode=0o700)
    (host.tmp_dir / ".cbt-crypto").touch()


@pytest.fixture
def checkout_with_a_trap(tmp_path: Path) -> Path:
    """A checkout of CBT, as far as anybody can tell, that says when its code runs."""
    folder = tmp_path / "trap"
    for name in (
        "cbt.py", "settings.py", "common.py", "monitoring.py", "benchmarkfactory.py",
        "cluster/ceph.py", "benchmark/benchmark.py",
    ):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n")
    return folder


def test_an_archive_s_word_is_neither_code_nor_an_order(
    tmp_path: Path, host: Any, no_overlays: None, checkout_with_a_trap: Path
) -> None:
    """Somebody sends an archive: its journal names a checkout, a dead holder, our directory."""
    path = path_of(host.archive)
    path.parent.mkdir(parents=True)
    entry = {
        "event": "begin", "run": "r9", "by": {**this_run(host.archive), "pid": 1, "started": 1},
        "hosts": {"his-host": {"devices": []}}, "document": read_campaign(host.write()).document,
        "checkout": str(checkout_with_a_trap), "time": 1.0,
    }  # fmt: skip
    path.write_text(json.dumps(entry) + "\n")
    left_behind(host)
    for words in (("--yes",), ("--plan",), ()):
        done = cleanup(*words, host.archive)
        assert done.exit_code != 0 and "is not one of your runs on this machine" in str(done.output)
    assert host.tmp_dir.exists()
    plan = cleanup("--foreign", "--plan", host.archive)
    assert f"localhost: directory {host.tmp_dir}" in plan.output and "his-host" not in plan.output
    # What it asks about is what it would act on; it asked about the hosts of the journal.
    asked = cleanup("--foreign", host.archive)
    assert f"localhost: processes with CBT_CRYPTO_MARK={host.tmp_dir}@" in asked.output
    assert "his-host" not in asked.output and "no terminal to ask on" in asked.output
    assert host.tmp_dir.exists()
    assert cleanup("--foreign", "--yes", host.archive).exit_code == 0
    assert not host.tmp_dir.exists(), "somebody has looked at it, and agreed"
    assert not (tmp_path / "sprung").exists(), "but its code is nobody's"


def test_a_living_campaign_on_the_same_hosts_is_left_alone(
    tmp_path: Path, host: Any, no_overlays: None
) -> None:
    campaign = read_campaign(host.write())
    begun(host.archive, campaign)
    left_behind(host)
    site, cluster = site_of(campaign.cluster), campaign.cluster
    remote = Remote(embedded().common, cluster.tmp_dir)
    with hosts_held(remote, site, "living", this_run(tmp_path / "other")):
        done = cleanup("--yes", host.archive)
        assert done.exit_code != 0 and "is in use by" in done.output
        assert host.tmp_dir.exists()
    assert [one.run for one in own_left_over(host.archive)] == ["r1"]


def test_what_is_given_up_is_not_touched(host: Any, no_overlays: None) -> None:
    dead = {**this_run(host.archive), "pid": 1, "started": 1}
    Journal(host.archive, "r1").begin(read_campaign(host.write()), dead, embedded())
    left_behind(host)
    done = cleanup("--forget", "--yes", host.archive)
    assert done.exit_code == 0 and host.tmp_dir.exists() and own_left_over(host.archive) == []
    who = f"a run that ended early, {dead['user']}@{dead['host']} (process 1, "
    assert done.output.startswith(f"forgotten, and left as it is: what {who}")
    assert done.output.endswith(", left on localhost\n") and len(done.output.splitlines()) == 1


@pytest.mark.parametrize("way", ["copy", "removed", "elsewhere"])
def test_a_living_run_is_not_given_up(host: Any, no_overlays: None, way: str) -> None:
    """In silence, where its archive was copied or removed, as the lock of neither is its own."""
    alive = {**this_run(host.archive), **({"host": "head1"} if way == "elsewhere" else {})}
    Journal(host.archive, "r1").begin(read_campaign(host.write()), alive, embedded())
    archive = host.archive
    if way == "copy":
        archive = host.directory / "copy"
        shutil.copytree(host.archive, archive)
    elif way == "removed":
        shutil.rmtree(archive)
    done = cleanup("--forget", "--yes", archive)
    assert done.exit_code == 2 and [one.run for one in own_left_over(archive)] == ["r1"]
    if way == "elsewhere":
        hint = f"if it is dead: cbt-crypto cleanup --forget --foreign {archive}\n"
        assert done.output.endswith(hint)
    else:
        assert "which is running; wait for it or end it" in done.output
    gone = cleanup("--forget", "--foreign", "--yes", archive)
    assert gone.exit_code == (0 if way == "elsewhere" else 2)


def test_a_run_of_another_machine_that_holds_its_hosts_is_left_alone(
    host: Any, no_overlays: None
) -> None:
    """With the home on NFS, `cleanup` took over a living run's hosts, and tore its cluster down."""
    campaign = read_campaign(host.write())
    elsewhere = {**this_run(host.archive), "host": "head1", "user": "alice", "pid": 4711}
    Journal(host.archive, "r1").begin(campaign, elsewhere, embedded())
    left_behind(host)
    remote = Remote(embedded().common, campaign.cluster.tmp_dir)
    with hosts_held(remote, site_of(campaign.cluster), "r1", elsewhere) as hold:
        done = cleanup("--yes", host.archive)
        assert done.exit_code == 2 and "is in use by alice@head1 (process 4711" in done.output
        assert f"is gone: cbt-crypto cleanup --foreign {host.archive}" in done.output
        hold.check()
        assert host.tmp_dir.exists()
        assert cleanup("--foreign", "--yes", host.archive).exit_code == 0
        assert not host.tmp_dir.exists(), "somebody knows that the other machine is gone"


def test_what_is_left_is_found_without_the_archive(host: Any, no_overlays: None) -> None:
    """It said that there is no such directory, and disks and daemons stayed."""
    begun(host.archive, read_campaign(host.write()))
    left_behind(host)
    shutil.rmtree(host.archive)
    done = cleanup("--yes", host.archive)
    assert done.exit_code == 0, done.output
    assert not host.tmp_dir.exists() and own_left_over(host.archive) == []


def test_what_is_left_is_found_beside_a_journal_that_cannot_be_read(
    host: Any, no_overlays: None
) -> None:
    """It was refused, with no word on how to go on."""
    begun(host.archive, read_campaign(host.write()))
    left_behind(host)
    journal = path_of(host.archive)
    journal.write_bytes(b"[" * 3_000_000)
    done = cleanup("--yes", host.archive)
    assert done.exit_code == 2 and host.tmp_dir.exists()
    assert "journal.jsonl: holds too many values, so it was not read; move it away" in done.output
    journal.rename(host.directory / "away")
    done = cleanup("--yes", host.archive)
    assert done.exit_code == 0, done.output
    assert not host.tmp_dir.exists() and own_left_over(host.archive) == []


def test_what_a_copy_s_cleanup_removed_is_not_left_by_the_original(
    host: Any, no_overlays: None
) -> None:
    """The original was refused for ever, as if somebody else had left something."""
    begun(host.archive, read_campaign(host.write()))
    left_behind(host)
    copy = host.directory / "copy"
    shutil.copytree(host.archive, copy)
    assert cleanup("--yes", copy).exit_code == 0
    assert not host.tmp_dir.exists()
    done = cleanup(host.archive)
    assert done.exit_code == 0 and "nothing is left on any host" in done.output, done.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_cleanup_frees_the_hosts_and_says_how_to_go_on(
    host: Any, wait_for: Any, number: int
) -> None:
    """SIGTERM and SIGHUP left the hosts held and said nothing; SIGINT exited with 2."""
    begun(host.archive, read_campaign(host.write()))
    left_behind(host)
    began = host.directory / "began"
    slow = f'case "$*" in *CBT_CRYPTO_MARK=*) touch {began}; sleep 3; exit 1;; esac'
    host.programs("grep", f'{slow}\nexec /bin/grep "$@"')
    words = [sys.executable, "-m", "cbt_crypto", "cleanup", "--yes", str(host.archive)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        wait_for(began.exists, 60)
        process.send_signal(number)
        said = process.communicate(timeout=60)[0]
    assert process.returncode == 1, said
    assert "not all is torn down; run the same command again" in said
    held = [path for path in Path("/proc").glob("[0-9]*/cmdline") if _holds(path, host.tmp_dir)]
    assert held == []
    assert len(own_left_over(host.archive)) == 1


def _holds(path: Path, tmp_dir: Path) -> bool:
    try:
        text = path.read_bytes()
    except OSError:
        return False
    return b'"action": "hold"' in text and str(tmp_dir).encode() in text


WITH_UPSTREAM = """\
cluster:
  use_existing: true
  head: localhost
  clients: [localhost]
  tmp_dir: {}
  configurations: {{Stock: {{}}}}
benchmarks:
  librbdfio:
    {{time: 1, vol_size: 64, iodepth: 4, mode: randwrite, op_size: 4096, pool_profile: rbd}}
"""


@pytest.mark.parametrize("way", ["in its place", "moved", "an archive's word"])
def test_pools_of_upstream_s_benchmarks_that_a_killed_run_left(
    host: Any, no_overlays: None, way: str
) -> None:
    """They stayed on somebody's cluster, with all their images, and nothing said so."""
    path, asked, dump = (host.directory / name for name in ("c.yaml", "asked", "dump.json"))
    path.write_text(WITH_UPSTREAM.format(host.tmp_dir))
    marks = {"cbt-librbdfio": made_for(socket.gethostname(), str(host.archive)), "his": "0f0f0f0f"}
    metadata = {name: {"rbd": {"cbt-crypto.archive": mark}} for name, mark in marks.items()}
    pools = {**metadata, "rbd": {"rbd": {}}, ".mgr": {}}
    listed = [{"pool_name": name, "application_metadata": of} for name, of in pools.items()]
    dump.write_text(json.dumps({"pools": listed}))
    host.programs("ceph", f'echo "$*" >> {asked}; case "$*" in *dump*) cat {dump} ;; esac')
    dead = {**this_run(host.archive), "pid": 1, "started": 1}
    Journal(host.archive, "r1").begin(read_campaign(path), dead, embedded())
    archive = host.archive
    if way == "moved":
        archive = archive.rename(host.directory / "moved")
    elif way == "an archive's word":
        forget("r1")
    assert "osd dump" in cleanup("--plan", "-v", "--foreign", archive).output or way[:2] == "an"
    done = cleanup("--yes", "--foreign", archive)
    assert done.exit_code == 0, done.output
    said = asked.read_text() if asked.exists() else ""
    removing = [line for line in said.splitlines() if " pool " in line]
    name = "cbt-librbdfio"
    rm = f"osd pool rm {name} {name} --yes-i-really-really-mean-it"
    if way == "an archive's word":
        assert removing == [] and "so do pools of CBT's benchmarks, which ceph osd" in done.output
    else:
        assert [line.endswith(rm) for line in removing] == [True]


@pytest.mark.parametrize("option", ["", "--forget", "--foreign"])
def test_another_existing_cluster_is_not_cleaned_up_for_the_run_s(host: Any, option: str) -> None:
    """It was asked for the run's images, had none, and those on the other cluster stayed."""
    path, there, here = host.directory / "c.yaml", *("0b48a2e5-25b4-44b1-8a4e-0000000000" + end
                                                     for end in ("0a", "0b"))  # fmt: skip
    path.write_text(WITH_UPSTREAM.format(host.tmp_dir))
    host.programs(
        "ceph", f'case "$*" in *fsid) echo {here} ;; *dump*) echo \'{{"pools": []}}\' ;; esac'
    )
    dead = {**this_run(host.archive), "pid": 1, "started": 1}
    Journal(host.archive, "r1").begin(read_campaign(path), dead, embedded(), {}, there)
    done = cleanup("--yes", *filter(None, [option]), host.archive)
    is_left = [each.run for each in own_left_over(host.archive)] == ["r1"]
    assert (done.exit_code, is_left) == ((0, False) if option else (2, True)), done.output
    assert (
        option or f"leads to the cluster {here} now, and this archive is of {there}" in done.output
    )


@pytest.mark.parametrize("is_own", [True, False], ids=["own", "another's"])
@pytest.mark.parametrize("version", ["0.9", "", __version__])
def test_a_run_of_another_version_s_file(host: Any, version: str, is_own: bool) -> None:
    """Its clean-up named a key of the journal; another's could not even be forgotten."""
    dead = {**this_run(host.archive), "pid": 1, "started": 1}
    Journal(host.archive, "r1").begin(read_campaign(host.write()), dead, embedded())
    journal, state = path_of(host.archive), directory() / "r1.json"
    for path in (journal, state):
        entry = {**json.loads(path.read_text()), "version": version}
        entry["document"]["cluster"]["osd_colour"] = "red"
        path.write_text(json.dumps(entry) + "\n")
    if not is_own:
        forget("r1")
    done = cleanup("--yes", "--foreign", host.archive)
    assert done.exit_code == 2 and "osd_colour" in done.output
    wrote = f"clean up with cbt-crypto {version or 'of then'}; this is {__version__}"
    assert (wrote in done.output) == (version != __version__)
    done = cleanup("--yes", "--foreign", "--forget", host.archive)
    assert done.exit_code == 0 and left_over(host.archive) == [], done.output
