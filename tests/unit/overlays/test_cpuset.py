"""The hooks of the overlay; the outputs are of two OSDs on a machine with two cores."""

from __future__ import annotations

import ast
import hashlib
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Optional

import pytest
from pydantic import ValidationError

from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.cluster_overlays.base import Seen, Transition
from cbt_crypto.cluster_overlays.cpuset import CpuSet
from cbt_crypto.hosts.site import Site

pytestmark = pytest.mark.unit

#: Of the sites' tmp_dir.
TMP_CBT = hashlib.sha256(b"/tmp/cbt").hexdigest()[:8]
ABSENT = CpuSet.absent()
ONE_CORE = CpuSet(osd_cores=1, clients="rest")


@pytest.fixture
def output(data: Path) -> Callable[[str], dict[str, str]]:
    def read(name: str) -> dict[str, str]:
        return {"node0": (data / "cpuset" / f"{name}.json").read_text()}

    return read


Output = Callable[[str], dict[str, str]]


def asked(script: str) -> dict[str, Any]:
    """The argument of the program that runs on the host."""
    first = script.splitlines()[0]
    words = shlex.split(first)
    assert words[:5] == ["${CBT_CRYPTO_PYTHON:-$SUDO", "python3", "-I", "-S}", "-"]
    assert words[6] == "<<PYTHON_PROGRAM"
    result: dict[str, Any] = json.loads(words[5])
    return result


def test_it_is_in_the_table() -> None:
    assert OVERLAYS["cpuset"] is CpuSet


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"smt": True},
        {"clients": "rest"},
        {"clients": "rest", "client_cores": 2},
        {"osd_cores": 0},
        {"osd_cores": 1, "numa": -1},
        {"osd_cores": 1, "numa": "two"},
        {"osd_cores": 1, "clients": "none"},
        {"cores": 1},
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CpuSet.model_validate(options)


def test_transitions_are_live() -> None:
    two = CpuSet(osd_cores=2)
    assert ABSENT.transition_to(two) == two.transition_to(ABSENT) == Transition.LIVE
    assert two.transition_to(CpuSet(osd_cores=2, smt=False)) == Transition.LIVE
    assert two.transition_to(CpuSet(osd_cores=2)) == Transition.NONE


def test_what_each_host_is_told(site: Site) -> None:
    scripts = CpuSet(osd_cores=2, numa=1, per_osd=True).after_osds(site)
    assert set(scripts) == {"node2", "node3"}
    assert asked(scripts["node3"]) == {
        "action": "apply",
        "group": f"cbt-crypto-node3.{TMP_CBT}",
        "options": {
            "osd_cores": 2,
            "per_osd": True,
            "smt": True,
            "numa": 1,
            "clients": "all",
            "client_cores": None,
        },
        "osds": {
            f"osd.{n}": {
                "pid_file": f"/tmp/cbt/run/osd.{n}.pid",
                "socket": f"/tmp/cbt/run/osd.{n}.asok",
            }
            for n in (2, 3)
        },
        "client": False,
    }


def test_the_program_travels_whole(site: Site) -> None:
    script = ONE_CORE.probe(site)["node2"]
    program = script.split("<<'PYTHON_PROGRAM'\n")[1].split("PYTHON_PROGRAM\n")[0]
    assert "def main" in program
    ast.parse(program)


def test_clients_are_told_only_when_they_are_confined(site: Site) -> None:
    assert set(CpuSet(osd_cores=1).probe(site)) == {"node2", "node3"}
    scripts = CpuSet(client_cores=1).after_osds(site)
    assert set(scripts) == {"node0", "node1", "node2", "node3"}
    assert asked(scripts["node0"])["client"]
    assert asked(scripts["node0"])["osds"] == {}
    assert not asked(scripts["node2"])["client"]


def test_absence_is_applied_and_probed_without_options(site: Site) -> None:
    for scripts in (ABSENT.after_osds(site), ABSENT.probe(site)):
        assert set(scripts) == {"node2", "node3"}
        assert asked(scripts["node2"])["options"] is None


def test_requirements(site: Site) -> None:
    needs = CpuSet(osd_cores=64).requirements(site)
    assert [need.hosts for need in needs] == [("node2",), ("node3",)]
    assert asked(needs[0].script)["action"] == "check"
    sentence = "osd_cores asks for 64 whole cores of one NUMA node, and free are 8 in node 0"
    assert needs[0].judge(sentence + "\n") == sentence
    assert needs[0].judge("ok\n") is None


def test_take_down_is_the_same_for_every_option_and_names_only_our_groups(site: Site) -> None:
    scripts = ABSENT.take_down(site)
    assert scripts == ONE_CORE.take_down(site)
    assert set(scripts) == {"node0", "node1", "node2", "node3"}
    assert scripts["node2"].endswith(f"\nremove_groups cbt-crypto-node2.{TMP_CBT}")
    other = ABSENT.take_down(replace(site, tmp_dir="/srv/other"))
    assert other["node2"] != scripts["node2"], "another campaign's on the same host"


def test_take_down_where_there_is_nothing(site: Site, sh: Callable[[str], str]) -> None:
    assert sh(ABSENT.take_down(site)["node2"]) == ""


def test_clients_are_wrapped_only_when_they_are_confined() -> None:
    assert ABSENT.wrap_client("node0", "fio job") == "fio job"
    assert CpuSet(osd_cores=1).wrap_client("node0", "fio job") == "fio job"
    words = shlex.split(ONE_CORE.wrap_client("node0", "env A='b c' fio"))
    assert words[:3] == ["SUDO=$SUDO", "sh", "-c"]
    assert words[4:] == ["cbt-crypto-node0", "env", "A=b c", "fio"]


def test_a_client_is_not_started_outside_its_group(sh: Callable[[str], str]) -> None:
    wrapped = ONE_CORE.wrap_client("no-such-host", "echo started")
    said = sh(f"({wrapped}) 2>&1 || echo status $?")
    assert said == "there is no cgroup cbt-crypto-no-such-host/clients\nstatus 1\n"


def test_confined_is_proved(one_host: Site, output: Output) -> None:
    verdict = ONE_CORE.judge(one_host, output("one_core"), output("one_core"))
    assert verdict.proved
    assert verdict.reason == "2 of 2 OSDs run on their cores; client processes have theirs"
    assert verdict.evidence["osd.1"] == {"expected": "0", "threads": {"0": 59}}
    assert verdict.evidence["clients"] == {"node0": {"expected": "1", "in_force": "1"}}


def test_unconfined_is_proved(one_host: Site, output: Output) -> None:
    verdict = ABSENT.judge(one_host, output("absent"), output("absent"))
    assert verdict.proved
    assert verdict.reason == "2 of 2 OSDs may use every CPU"


def _changed(output: dict[str, str], change: Callable[[Any], object]) -> dict[str, str]:
    facts = json.loads(output["node0"])
    change(facts)
    return {"node0": json.dumps(facts)}


@pytest.mark.parametrize("when", ["before", "after"])
def test_one_thread_on_another_cpu_fails_the_proof(
    one_host: Site, output: Output, when: str
) -> None:
    good = output("one_core")
    strayed = _changed(good, lambda facts: facts["osds"]["osd.1"]["threads"].update({"0-1": 1}))
    looks = (strayed, good) if when == "before" else (good, strayed)
    verdict = ONE_CORE.judge(one_host, *looks)
    assert not verdict.proved
    assert "osd.1 on node0: 1 of 60 threads may use CPUs 0-1 and not 0" in verdict.reason


def test_a_confined_osd_contradicts_the_baseline(one_host: Site, output: Output) -> None:
    good = output("absent")
    confined = _changed(good, lambda facts: facts["osds"]["osd.0"].update(threads={"1": 59}))
    verdict = ABSENT.judge(one_host, good, confined)
    assert not verdict.proved
    assert "osd.0 on node0: 59 of 59 threads may use CPUs 1 and not 0-1" in verdict.reason


def _pinned(facts: Any, node: int, cpus: str) -> None:
    """As `show` prints them on a host of two sockets where Ceph pins osd.0 to one."""
    facts["usable"] = "0-127"
    for osd in facts["osds"].values():
        osd.update(expected="0-127", threads={"0-127": 59})
    facts["osds"]["osd.0"] = {"expected": cpus, "numa_node": node, "threads": {cpus: 59}}


def test_an_osd_that_ceph_keeps_on_a_node_is_a_baseline(one_host: Site, output: Output) -> None:
    pinned = _changed(output("absent"), lambda facts: _pinned(facts, 0, "0-31,64-95"))
    verdict = ABSENT.judge(one_host, pinned, pinned)
    assert verdict.proved
    assert verdict.reason == (
        "2 of 2 OSDs may use every CPU, or all of the NUMA node that Ceph chose for them"
    )
    assert verdict.evidence["osd.0"]["numa_node"] == 0
    strayed = _changed(pinned, lambda facts: facts["osds"]["osd.0"]["threads"].update({"5": 1}))
    assert not ABSENT.judge(one_host, pinned, strayed).proved


def test_an_osd_that_ceph_moves_meanwhile_fails_the_proof(one_host: Site, output: Output) -> None:
    looks = [
        _changed(output("absent"), lambda facts, n=node, c=cpus: _pinned(facts, n, c))  # type: ignore[misc]
        for node, cpus in enumerate(("0-31,64-95", "32-63,96-127"))
    ]
    verdict = ABSENT.judge(one_host, looks[0], looks[1])
    assert not verdict.proved
    assert "osd.0 on node0: Ceph moved it from CPUs 0-31,64-95 to 32-63,96-127" in verdict.reason
    seen = [{"osds": {"osd.0": {"expected": cpus, "found": [cpus]}}} for cpus in ("0-31", "32-63")]
    fault = ABSENT.judge_seen(one_host, {"node0": [Seen(one, 1.0) for one in seen]})
    assert fault == (
        "osd.0 on node0: threads could use CPUs 32-63 and not 0-31 for a part of the cell"
    )


def test_an_osd_that_is_gone_fails_the_proof(one_host: Site, output: Output) -> None:
    good = output("absent")
    gone = _changed(good, lambda facts: facts["osds"]["osd.0"].update(threads={}))
    verdict = ABSENT.judge(one_host, good, gone)
    assert not verdict.proved
    assert "osd.0 on node0: it is not running" in verdict.reason


@pytest.mark.parametrize("clients", [None, {"expected": "1", "in_force": "0-1"}])
def test_clients_on_other_cores_fail_the_proof(
    one_host: Site, output: Output, clients: Any
) -> None:
    good = output("one_core")
    wrong = _changed(good, lambda facts: facts.update(clients=clients))
    verdict = ONE_CORE.judge(one_host, good, wrong)
    assert not verdict.proved
    assert verdict.reason.endswith("client processes have no such cores on node0")


@pytest.mark.parametrize("printed", [None, "", "python3: not found", "null", "{}", "3"])
def test_a_silent_host_fails_the_proof(one_host: Site, printed: Optional[str]) -> None:
    output = {} if printed is None else {"node0": printed}
    verdict = ABSENT.judge(one_host, output, output)
    assert not verdict.proved
    assert "its host did not say on which CPUs it runs" in verdict.reason


def test_threads_that_had_other_cpus_meanwhile_are_a_fault(site: Site) -> None:
    overlay = CpuSet(osd_cores=1)
    right = {"osds": {"osd.0": {"expected": "0-1", "found": ["0-1"]}}}
    wrong = {"osds": {"osd.0": {"expected": "0-1", "found": ["0-1", "2"]}}}
    assert overlay.judge_seen(site, {"node2": [Seen(right, 1.0)]}) is None
    fault = overlay.judge_seen(site, {"node2": [Seen(one, 1.0) for one in (right, wrong, right)]})
    assert fault == ("osd.0 on node2: threads could use CPUs 2 and not 0-1 for a part of the cell")
