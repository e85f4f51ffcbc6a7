"""The program that talks to the monitors, run with a librados that answers from a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import psutil
import pytest

from cbt_crypto.engine.embedded.daemons import Step, answers, script

pytestmark = pytest.mark.unit

#: Answers of one prefix are given one after another, the last again and again.
_RADOS = """
import json, os

class Error(Exception):
    pass

class Rados:
    def __init__(self, conffile, name):
        self.conffile, self.name = conffile, name
        self.answers = json.load(open(os.environ["FAKE_RADOS"]))
        self.asked = open(os.environ["FAKE_RADOS"] + ".asked", "a")

    def connect(self, timeout):
        if self.answers.get("connect"):
            raise Error(self.answers["connect"])

    def mon_command(self, text, inbuf):
        asked = json.loads(text)
        self.asked.write(text + "\\n")
        given = self.answers.get(asked["prefix"], [[0, "", ""]])
        status, out, words = given[0]
        if len(given) > 1:
            given.pop(0)
        return status, (out if isinstance(out, str) else json.dumps(out)).encode(), words

    def pg_command(self, pgid, text, inbuf):
        assert json.loads(text)["pgid"] == pgid
        return self.mon_command(json.dumps({"prefix": "pg " + pgid}), inbuf)

    def mgr_command(self, text, inbuf):
        return self.mon_command(text, inbuf)

    def wait_for_latest_osdmap(self):
        pass

    def shutdown(self):
        self.asked.close()
"""


@pytest.fixture
def session(
    tmp_path: Path, programs: Callable[[str, str], Path]
) -> Callable[..., tuple[int, list[str], str]]:
    """Take steps on a cluster with these answers: exit status, what was printed, errors."""
    (tmp_path / "rados.py").write_text(_RADOS)
    programs("ceph", f"#! {sys.executable}\n")

    def run(steps: list[Step], timeout: int = 5, **given: Any) -> tuple[int, list[str], str]:
        path = tmp_path / "answers.json"
        path.write_text(json.dumps({key.replace("_", " "): value for key, value in given.items()}))
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "FAKE_RADOS": str(path)}
        done = subprocess.run(
            ["sh", "-c", script("ceph", "/tmp/a b/ceph.conf", steps, timeout)],
            check=False, capture_output=True, text=True, env=environment,
        )  # fmt: skip
        return done.returncode, answers(done.stdout), done.stderr.strip()

    return run


Session = Callable[..., tuple[int, list[str], str]]


def osds(*states: tuple[int, int, int]) -> dict[str, Any]:
    rows = [{"up": up, "in": taken, "up_from": epoch} for up, taken, epoch in states]
    return {"osds": rows, "pools": [{"pool": 2, "pool_name": "rbd", "pg_num": 17}]}


def test_commands_are_taken_in_order_and_their_words_come_back(
    session: Session, tmp_path: Path
) -> None:
    steps = [
        {"mon": {"prefix": "osd set", "key": "it's"}},
        {"mon": {"prefix": "osd stat", "format": "json"}},
    ]
    given = {"osd_set": [[0, "", "noscrub is set"]], "osd_stat": [[0, {"epoch": 41}, ""]]}
    status, printed, _ = session(steps, **given)
    assert (status, printed) == (0, ["noscrub is set", '{"epoch": 41}'])
    asked = (tmp_path / "answers.json.asked").read_text().splitlines()
    assert [json.loads(line) for line in asked] == [step["mon"] for step in steps]


def test_a_command_that_fails_ends_it_with_its_words(session: Session) -> None:
    steps = [{"mon": {"prefix": "osd pool create"}}, {"mon": {"prefix": "osd set"}}]
    status, printed, stderr = session(steps, osd_pool_create=[[-34, "", "pg_num too large"]])
    assert (status, printed, stderr) == (1, [], "ceph osd pool create: pg_num too large")


def test_osds_are_waited_for(session: Session) -> None:
    up, down = (1, 1, 9), (0, 1, 0)
    dumps = [[0, osds(down, down), ""], [0, osds(up, down), ""], [0, osds(up, up), ""]]
    status, printed, _ = session([{"wait": "osds", "count": 2, "since": 0}], osd_dump=dumps)
    assert (status, printed) == (0, [""])


@pytest.mark.parametrize("missing", [(0, 1, 9), (1, 0, 9), (1, 1, 5)])
def test_an_osd_counts_when_it_is_up_and_in_and_came_up_since(
    session: Session, missing: tuple[int, int, int]
) -> None:
    steps = [{"wait": "osds", "count": 2, "since": 5}]
    status, _, stderr = session(steps, timeout=1, osd_dump=[[0, osds((1, 1, 6), missing), ""]])
    assert (status, stderr) == (1, "after 1 s still: 1 of 2 OSDs are up")


PGS: Step = {"wait": "pgs", "pools": ["rbd"]}
CLEAN = [0, {"state": "active+clean"}, ""]


def test_every_placement_group_is_looked_at(session: Session, tmp_path: Path) -> None:
    groups = {f"pg_2.{number:x}": [CLEAN] for number in range(17)}
    groups["pg_2.10"] = [[0, {"state": "peering"}, ""], CLEAN]
    assert session([PGS], osd_dump=[[0, osds(), ""]], **groups)[0] == 0
    asked = (tmp_path / "answers.json.asked").read_text()
    assert all(f'"pg 2.{number:x}"' in asked for number in range(17))


def test_a_placement_group_that_is_not_clean_is_named(session: Session) -> None:
    groups = {f"pg_2.{number:x}": [CLEAN] for number in range(17)}
    groups["pg_2.a"] = [[0, {"state": "active+undersized"}, ""]]
    _, _, stderr = session([PGS], timeout=1, osd_dump=[[0, osds(), ""]], **groups)
    assert stderr == "after 1 s still: placement group 2.a is active+undersized"


def test_where_a_pool_is_placed_is_asked_of_the_monitors(session: Session, tmp_path: Path) -> None:
    """The manager, which is told every 5 s, lists the groups of a new pool as on no OSD."""
    unknown = [{"pgid": f"2.{number:x}", "up": [], "acting": []} for number in range(17)]
    status, printed, _ = session(
        [{"placed": "rbd"}],
        osd_dump=[[0, osds(), ""]],
        pg_map=[[0, {"up": [3, 1], "acting": [1, 5]}, ""]],
        **{"pg_ls-by-pool": [[0, {"pg_stats": unknown}, ""]]},
    )
    assert (status, printed) == (0, ["[1, 3, 5]"])
    asked = (tmp_path / "answers.json.asked").read_text()
    assert all(f'"2.{number:x}"' in asked for number in range(17))


def test_many_placement_groups_are_read_from_the_summary(session: Session) -> None:
    dump = osds()
    dump["pools"][0]["pg_num"] = 16384
    stat = {"num_pgs": 16384, "num_pg_by_state": [{"name": "active+clean", "num": 16384}]}
    early = {"num_pgs": 0, "num_pg_by_state": []}
    given = [[0, {"pg_summary": early}, ""], [0, {"pg_summary": stat}, ""]]
    assert session([PGS], osd_dump=[[0, dump, ""]], pg_stat=given)[0] == 0
    stat["num_pg_by_state"].append({"name": "active+recovering", "num": 1})  # type: ignore[attr-defined]
    _, _, stderr = session([PGS], timeout=1, osd_dump=[[0, dump, ""]], pg_stat=[[0, stat, ""]])
    assert stderr == "after 1 s still: placement groups are active+recovering"


def test_groups_are_asked_again_only_when_the_map_is_another_one(
    session: Session, tmp_path: Path
) -> None:
    """What was clean of one map can become otherwise by a later one only."""
    groups = {f"pg_2.{number:x}": [CLEAN] for number in range(17)}
    dump = {**osds(), "epoch": 30}
    status, printed, _ = session([PGS], osd_dump=[[0, dump, ""]], **groups)
    assert (status, printed) == (0, ["30"])
    for clean_at, questions in ((30, 1), (29, 1 + 17)):
        (tmp_path / "answers.json.asked").unlink()
        again = {**PGS, "clean_at": clean_at}
        status, printed, _ = session([again], osd_dump=[[0, dump, ""]], **groups)
        assert (status, printed) == (0, ["30"])
        assert len((tmp_path / "answers.json.asked").read_text().splitlines()) == questions


def test_a_summary_may_be_of_an_earlier_map_so_it_is_always_asked_for(session: Session) -> None:
    dump = {**osds(), "epoch": 30}
    dump["pools"][0]["pg_num"] = 1024
    stat = {"num_pgs": 1024, "num_pg_by_state": [{"name": "active+clean", "num": 1024}]}
    answered = session([PGS], osd_dump=[[0, dump, ""]], pg_stat=[[0, stat, ""]])
    assert answered[:2] == (0, [""])


def test_a_manager_is_waited_for(session: Session) -> None:
    given = [[0, {"available": False}, ""], [0, {"available": True}, ""]]
    assert session([{"wait": "mgr"}], mgr_stat=given)[0] == 0


def test_no_monitor_answers(session: Session) -> None:
    status, _, stderr = session([], connect="timed out")
    assert (status, stderr) == (1, "no monitor answers: timed out")


@pytest.fixture
def kept(tmp_path: Path, session: Session) -> Iterator[Callable[..., tuple[list[str], str]]]:
    """Take steps in one session that is kept; what was printed, and errors."""
    session([], osd_stat=[[0, "one", ""], [0, "two", ""], [0, "three", ""]], bad=[[-1, "", "no"]])
    paths = {"PYTHONPATH": str(tmp_path), "FAKE_RADOS": str(tmp_path / "answers.json")}

    def run(*steps: Step) -> tuple[list[str], str]:
        text = script("ceph", "/c", steps, 5, str(tmp_path / "kept"))
        done = subprocess.run(
            ["sh", "-euc", text], check=False, capture_output=True, text=True,
            env={**os.environ, **paths}, timeout=60,
        )  # fmt: skip
        return answers(done.stdout), done.stderr.strip()

    yield run
    run({"end": True})


STAT: Step = {"mon": {"prefix": "osd stat"}}


def test_a_session_is_kept_for_the_steps_that_follow(kept: Callable[..., Any]) -> None:
    # A new session would begin with the first answer again.
    assert [kept(STAT), kept(STAT, STAT)] == [(["one"], ""), (["two", "three"], "")]


@pytest.mark.parametrize("ended_by", [{"end": True}, {"mon": {"prefix": "bad"}}])
def test_after_its_end_another_one_begins(kept: Callable[..., Any], ended_by: Step) -> None:
    assert kept(STAT)[0] == ["one"]
    said = kept(ended_by)
    assert said == (([""], "") if "end" in ended_by else ([], "ceph bad: no"))
    assert kept(STAT)[0] == ["one"]


def test_one_that_was_killed_is_not_waited_for(kept: Callable[..., Any], tmp_path: Path) -> None:
    assert kept(STAT)[0] == ["one"]
    (pid,) = [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(tmp_path / "kept") in (process.info["cmdline"] or ())
    ]
    os.kill(pid, signal.SIGKILL)
    assert kept(STAT)[0] == ["one"]


def test_a_ceph_that_is_not_there() -> None:
    text = script("/no/ceph", "/c", [], 1)
    done = subprocess.run(["sh", "-c", text], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "ceph is missing; install ceph-common\n")
