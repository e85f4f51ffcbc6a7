"""What a proof tells besides: dm-crypt's workers beside pinned OSDs, and OSDs of unlike load."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest

from cbt_crypto.archive.documents import OverlayProof, PlannedCell, Proof, parse_document
from cbt_crypto.report import build
from cbt_crypto.report.document import document
from cbt_crypto.report.figures.doubts import doubts, notes_of, numbers, unlike_in_rate
from cbt_crypto.report.markdown import markdown
from cbt_crypto.report.model import ReportCell, Section, Table
from cbt_crypto.results.cell.run import Run

pytestmark = pytest.mark.unit

#: As dmsetup printed it in a virtual machine, keys left out.
_TABLE = "0 98304 crypt aes-xts-plain64 :64:logon 0 252:16 32768"
_CPUSET: dict[str, Any] = {"overlay": "cpuset", "proved": True, "options": {"osd_cores": 4}}


def _luks(options: str) -> dict[str, Any]:
    layers = [{"device": "254:0", "mapping": "m", "table": f"{_TABLE}{options}"}]
    evidence = {"osd.0": {"running": True, "opened": {"254:0": layers}}}
    return {"overlay": "luks", "proved": True, "evidence": evidence}


def _osds(ops: list[int], pgs: Optional[list[int]] = None) -> dict[str, Any]:
    evidence: dict[str, dict[str, int]] = {f"osd.{n}": {"ops": one} for n, one in enumerate(ops)}
    for n, one in enumerate(pgs or ()):
        evidence[f"osd.{n}"]["primary_pgs"] = one
    return {"overlay": "osds", "proved": True, "evidence": evidence}


def _said(direction: str, *overlays: dict[str, Any]) -> list[str]:
    found = tuple(OverlayProof.model_validate(one) for one in overlays)
    proof = Proof(format=1, configuration="A", proved=True, overlays=found)
    return list(doubts(proof, direction))


@pytest.mark.parametrize(
    ("options", "direction", "is_said"),
    [
        ("", "read", True),
        (" 1 no_read_workqueue", "read", False),
        (" 1 no_read_workqueue", "write", True),
        (" 2 no_read_workqueue no_write_workqueue", "write", False),
    ],
)
def test_workers_of_dm_crypt_beside_pinned_osds(
    options: str, direction: str, is_said: bool
) -> None:
    said = _said(direction, _CPUSET, _luks(options))
    assert [text.startswith("kcryptd not confined") for text in said] == [True] * is_said


def test_workers_are_no_doubt_where_osds_may_use_every_cpu_or_nothing_is_encrypted() -> None:
    absent = {**_CPUSET, "present": False}
    clients_only = {**_CPUSET, "options": {"client_cores": 2}}
    assert _said("read", absent, _luks("")) == _said("read", clients_only, _luks("")) == []
    assert _said("read", _CPUSET, {**_luks(""), "present": False}) == []


def test_an_osd_that_serves_far_more_than_the_mean() -> None:
    (said,) = _said("read", _osds([1000, 1000, 1000, 2000], [10, 10, 10, 20]))
    assert said == (
        "osd.3 served 60 % more operations than the mean of 4 OSDs; it is primary of 60 % more "
        "placement groups"
    )
    (said,) = _said("read", _osds([1000, 1000, 1000, 2000], [20, 20, 20, 10]))
    assert said.endswith("it is primary of 43 % fewer placement groups")
    assert _said("read", _osds([1000, 1000, 1000, 1200])) == []
    assert _said("read", _osds([1, 1, 1, 9])) == []


def test_placement_groups_that_are_spread_unevenly_under_an_even_load() -> None:
    """A few objects may fall evenly on OSDs whose groups do not; 14 and 2 were seen."""
    said = "osd.0 is primary of 75 % more placement groups than the mean of 2 OSDs"
    for ops in ([1000, 1000], [1, 1], [0, 0]):
        assert _said("read", _osds(ops, [14, 2])) == [f"{said}: balance them, or raise pg_num"]
    assert _said("read", _osds([1000, 1000], [9, 7])) == []
    assert _said("read", _osds([1000, 1000], [0, 0])) == []
    copies = _osds([1000, 1000, 1000], [8, 8, 8])
    for name, count in zip(copies["evidence"], (32, 16, 16)):
        copies["evidence"][name]["pgs"] = count
    assert _said("write", copies) == [
        "osd.0 has 50 % more placement groups than the mean of 3 OSDs: balance them, "
        "or raise pg_num"
    ]


@pytest.mark.parametrize("evidence", [None, [], "text", {"osd.0": 3}, {"osd.0": {"opened": 1}}])
def test_evidence_of_any_shape_is_no_error(evidence: Any) -> None:
    named = [{"overlay": one, "proved": True, "evidence": evidence} for one in ("luks", "osds")]
    assert _said("read", _CPUSET, *named) == []
    assert list(doubts(None, "read")) == []


@pytest.mark.parametrize("ops", [10**400, -(10**400), math.nan, math.inf])
def test_an_osd_s_counter_that_is_none(small: Path, ops: float) -> None:
    """What one host had said of its OSD ended the campaign's report in a traceback."""
    evidence = {"osd.0": {"ops": 5000, "primary_pgs": 1}, "osd.1": {"ops": ops}}
    assert _said("read", {"overlay": "osds", "proved": True, "evidence": evidence}) == []
    path = next(small.glob("results/0*/id-*/proof.json"))
    proof = json.loads(path.read_text())
    proof["overlays"] = [{"overlay": "osds", "proved": True, "evidence": evidence}]
    path.write_text(json.dumps(proof))
    json.dumps(document(build(small)), allow_nan=False)


def test_a_busy_thread_that_none_can_be() -> None:
    """400 digits ended `report` in a traceback."""
    told = {"configuration": "a", "clients": {"h": {"cpu_percent": 10**400, "thread": "x"}}}
    text = json.dumps({"format": 1, "proved": True, **told})
    assert list(doubts(parse_document(Proof, text.encode()), "read")) == []


def test_osds_of_which_not_all_tell_their_groups() -> None:
    """As many told groups as told operations, and other ones: a traceback."""
    named = {"osd.0": {"ops": 1, "primary_pgs": 1}, "osd.1": {"ops": 5000},
             "osd.2": {"primary_pgs": 7}}  # fmt: skip
    (said,) = _said("read", {"overlay": "osds", "proved": True, "evidence": named})
    assert said == "osd.1 served 100 % more operations than the mean of 2 OSDs"


def test_what_the_site_encrypts_below_the_cluster() -> None:
    evidence = {"node0": "none", "encrypted_paths": ["node0 reaches 10.9.0.2 through IPsec"]}
    network = {"overlay": "network", "present": False, "proved": True, "evidence": evidence}
    assert _said("read", network) == [
        "node0 reaches 10.9.0.2 through IPsec: the network already encrypts what Ceph sends"
    ]


def test_a_client_that_one_thread_holds_up() -> None:
    clients = {
        "node0": {"thread": "msgr-worker-1", "cpu_percent": 98.6},
        "node1": {"thread": "fio", "cpu_percent": 71.0},
        "node2": "damaged",
    }
    proof = Proof(format=1, configuration="A", proved=True, clients=clients)
    assert list(doubts(proof, "read")) == [
        "client node0 was held up by one busy thread: its msgr-worker-1 used 99 % of a CPU"
    ]


def _tell_nodes(root: Path, cell: str, nodes: Sequence[Optional[int]], **options: int) -> None:
    """Add what `cpuset` showed of two-socket hosts' OSDs to a cell's proof."""
    path = root / cell / "proof.json"
    proof = json.loads(path.read_text())
    evidence = {
        f"osd.{n}": {"expected": "0-127", "threads": {}}
        if node is None
        else {"expected": "0-31,64-95", "numa_node": node, "threads": {}}
        for n, node in enumerate(nodes)
    }
    about = {"overlay": "cpuset", "present": bool(options), "options": options, "proved": True}
    proof["overlays"].append({**about, "evidence": evidence})
    path.write_text(json.dumps(proof))


@pytest.mark.parametrize(
    ("nodes", "options", "sentence"),
    [
        ((0, 1, None), {}, None),
        ((1, 1, 1), {"osd_cores": 4}, None),
        ((0, 0, None), {}, "Ceph ran osd.1 on NUMA node 1 in one cell and on NUMA node 0 in "),
        ((0, None, 1), {}, "Ceph ran osd.1 (and 1 more OSD) on NUMA node 1 in one cell and on all"),
    ],
)
def test_a_row_whose_osds_ceph_kept_elsewhere(
    small: Path, nodes: Sequence[Optional[int]], options: dict[str, int], sentence: Optional[str]
) -> None:
    _tell_nodes(small, "results/00000000/id-00000000", (0, 1, None))
    _tell_nodes(small, "results/00000000/id-00000002", nodes, **options)
    built = build(small)
    plain, luks = (cell for cell in built.cells if cell.direction == "read")
    assert plain.warnings == ()
    if sentence is None:
        assert luks.warnings == ()
    else:
        (warning,) = luks.warnings
        assert warning.startswith(sentence)
        assert warning in markdown(built)


def test_a_row_whose_osds_were_remote_to_their_drives(small: Path) -> None:
    path = small / "results/00000000/id-00000002/proof.json"
    proof = json.loads(path.read_text())
    far = {"expected": "0-31", "remote_drives": {"nvme1n1": 1}, "threads": {}}
    near = {"expected": "32-63", "threads": {}}
    evidence = {"osd.0": far, "osd.1": near, "osd.2": far, "clients": None}
    about = {"overlay": "cpuset", "present": True, "options": {"osd_cores": 32}, "proved": True}
    proof["overlays"].append({**about, "evidence": evidence})
    path.write_text(json.dumps(proof))
    built = build(small)
    plain, luks = (cell for cell in built.cells if cell.direction == "read")
    assert plain.warnings == ()
    sentence = "osd.0 (and 1 more OSD) had no CPU of NUMA node 1, where its drive nvme1n1 is"
    assert sentence in luks.warnings
    assert sentence in markdown(built)


def test_a_mark_of_numbers_in_a_reason_is_no_number() -> None:
    """`5 # 7` and `# # 5` were one note of three numbers, and the report a traceback."""
    cells = [ReportCell(one, {}, "read", "failed", reason=one) for one in ("5 # 7", "# # 5")]
    table = Table("rbd", "rbd", 4096, {}, (Section("random reads", "randread", "read", cells),))
    assert [note.text for note in notes_of(table)] == ["5 # 7", "# # 5"]


def test_rows_at_unequal_rates_say_so() -> None:
    """After `--again` of the baseline its half was another one, and latencies were compared."""
    planned = PlannedCell(id="i", path="p", iteration=0, scenario="s", configuration="A")
    runs = [Run(planned, {}, rate_iops=rate) for rate in (1000.0, 1200.0)]
    (said,) = unlike_in_rate(runs[:1], runs[1:])
    assert said == "its rate was 1,000 IOPS, the baseline's 1,200: this compares unequal loads"
    assert not list(unlike_in_rate(runs[:1], runs[:1]))
    assert not list(unlike_in_rate(runs[:1], [replace(runs[0], rate_iops=None)]))


def test_notes_that_differ_in_numbers_alone_are_one() -> None:
    """Each of twenty runs had a footnote of its own on its OSD with the most groups."""
    more = "more placement groups than the mean of 4 OSDs: balance them, or raise pg_num"

    def row(name: str, *said: str) -> ReportCell:
        return ReportCell(name, {}, "read", "measured", warnings=said)

    cells = (
        row("A", f"osd.1 is primary of 38 % {more}", f"osd.3 is primary of 41 % {more}"),
        row("B", f"osd.1 is primary of 1,075.5 % {more}", "client 10.0.0.1 did 3 % more"),
        row("C", "client 10.0.0.2 did 4 % more", "2 of 5 runs failed", "3 of 5 runs failed"),
    )
    section = Section("random reads", "randread", "read", cells)
    table = Table("rbd", "rbd", 4096, {}, (section,))
    notes = notes_of(table)
    assert [(note.number, note.text) for note in notes] == [
        (1, f"osd.1 or osd.3 is primary of 38 to 1,075.5 % {more}"),
        (2, "client 10.0.0.1 did 3 % more"),
        (3, "client 10.0.0.2 did 4 % more"),
        (4, "2 or 3 of 5 runs failed"),
    ]
    assert notes[0].where == "A, B, random reads"
    assert [numbers(cell, notes) for cell in cells] == [[1], [1, 2], [3, 4]]
