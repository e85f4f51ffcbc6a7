"""Campaigns whose configurations take turns until a precision is reached, on a host of fakes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.cluster_overlays.base import Overlay, Transition

pytestmark = pytest.mark.unit

TIME = {"precision": "5%", "min": 2, "max": 24, "block": 2}
#: Writes a log of its IOPS: the values in the file `iops`, which a test changes.
FIO = """
[ "$1" = --enghelp ] && { echo "Available IO engines:"; echo "	rbd"; exit 0; }
for word; do case $word in
    --output=*) echo '{"fio version": "fio-3.33", "jobs": [{"read": {"total_ios": 1}}]}' \\
        > "${word#--output=}" ;;
    --write_iops_log=*) n=0; for value in $(cat DIRECTORY/iops); do
            n=$((n+1)); echo "${n}000, $value, 0, 0, 0"
        done > "${word#--write_iops_log=}_iops.1.log" ;;
    --write_lat_log=*) n=0; for value in $(cat DIRECTORY/clat); do
            n=$((n+1)); echo "${n}000, $value, 0, 0, 0"
        done > "${word#--write_lat_log=}_clat.1.log"
        # The next cell's processes wait longer.
        awk '{ for (n = 1; n <= NF; n++) printf "%d ", $n * 1.7 % 1000 + 1 }' DIRECTORY/clat > \
            DIRECTORY/clat.next && mv DIRECTORY/clat.next DIRECTORY/clat ;;
esac; done
"""


class Turn(Overlay):
    """One that is changed live."""

    name = "turn"
    number: int = 0

    @classmethod
    def absent(cls) -> Overlay:
        return cls.make_absent()

    def transition_to(self, new: Overlay) -> Transition:
        return Transition.NONE if self == new else Transition.LIVE


@pytest.fixture
def turns(host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(OVERLAYS, "turn", Turn)
    monkeypatch.setattr("cbt_crypto.plan.steps.pause_s", lambda *of: 0.0)
    host.programs("fio", FIO.replace("DIRECTORY", str(host.directory)))
    (host.directory / "iops").write_text("1000 1000 1000 1000")
    (host.directory / "clat").write_text("100 100 100 100")
    return host


def campaign(host: Any, **benchmark: Any) -> Any:
    cluster = {
        "rebuild": "needed",
        "order": "interleaved",
        "configurations": {"A": {}, "B": {"turn": {"number": 1}}, "C": {"turn": {"number": 2}}},
    }
    load = {"time": TIME, "op_size": 4096, **benchmark}
    return host.write(cluster=cluster, benchmarks={"rbd_single_client": load})


def plan_of(host: Any) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads((host.archive / "results" / "plan.json").read_text())
    return plan


def measured(host: Any) -> list[tuple[int, str]]:
    """Round and configuration of the finished cells, in the order in which they were measured."""
    states = [
        json.loads(path.read_text()) for path in host.archive.glob("results/0*/id-*/cell.json")
    ]
    states.sort(key=lambda state: state["started"])
    return [(state["iteration"], state["configuration"]) for state in states]


def test_it_stops_when_every_percent_is_known_and_is_finished_then(turns: Any) -> None:
    path = campaign(turns)
    result = turns.cbt(path)
    assert result.exit_code == 0, result.output
    done = measured(turns)
    # of values that do not vary, six pairs are the fewest that carry a verdict
    assert sorted(done) == [(n, name) for n in range(6) for name in "ABC"]
    assert [turn for turn, _ in done] == sorted(turn for turn, _ in done)
    assert result.output.count("(rebuild") == 1
    assert result.output.count("prefill ") == 1
    # what the archive says of it
    plan = plan_of(turns)
    assert len(plan["cells"]) == 18
    assert plan["order"] == "interleaved"
    assert isinstance(plan["seed"], int)
    cells = [
        json.loads((turns.archive / c["path"] / "cell.json").read_text()) for c in plan["cells"]
    ]
    assert len({cell["deployment"] for cell in cells}) == 1
    assert all(cell["block"] == {"warmup_s": 0.0, "iops": {"read": 1000.0}} for cell in cells)
    steps = json.loads((turns.archive / "results" / "timeline.json").read_text())["steps"]
    assert sum(step["step"] == "measure" for step in steps) == 18
    assert {step["how"] for step in steps if step["step"] == "deploy"} == {"rebuild", "live"}
    again = turns.cbt(path)
    assert "every cell is in the archive already" in again.output


def test_the_warmup_is_the_same_for_every_block_whatever_it_holds(turns: Any) -> None:
    """What each block's seconds decided left out stalls as if they were warm-up."""
    (turns.directory / "iops").write_text("100 100 1001 999 1000 1001")
    time = {"precision": "5%", "min": 4, "max": 40, "block": 4, "warmup": 1}
    turns.cbt(campaign(turns, time=time))
    blocks = [
        json.loads(path.read_text())["block"]
        for path in turns.archive.glob("results/0*/id-*/cell.json")
    ]
    assert len(blocks) >= 18 and {block["warmup_s"] for block in blocks} == {1.0}
    assert blocks[0]["iops"]["read"] == pytest.approx((100 + 1001 + 999 + 1000 + 1001) / 5)


def test_a_campaign_goes_on_where_it_was(turns: Any) -> None:
    path = campaign(turns)
    turns.cbt(path)
    before = measured(turns)
    lost = [c for c in plan_of(turns)["cells"] if c["iteration"] == 3]
    for cell in lost:
        (turns.archive / cell["path"] / "cell.json").unlink()
    result = turns.cbt(path)
    assert result.exit_code == 0
    # on a new cluster there is nothing to pair these with, so four more are needed
    assert len(measured(turns)) >= len(before)
    assert result.output.count("(rebuild") == 1


def test_at_most_the_longest_time(turns: Any) -> None:
    host = turns
    script = FIO.replace("$(cat DIRECTORY/iops)", "$(od -An -N8 -tu2 /dev/urandom)")
    host.programs("fio", script)
    result = host.cbt(campaign(host, time={**TIME, "precision": "0.1%", "max": 12}))
    assert result.exit_code == 0, result.output
    assert len(measured(host)) == 3 * 6


def test_a_failed_block_breaks_its_pair_and_no_more(
    turns: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail = (
        f'[ -e {turns.directory}/failed ] || {{ [ "$1" = --enghelp ] || case "$*" in *write_iops*)'
    )
    fail += f" touch {turns.directory}/failed; exit 1;; esac; }}\n"
    turns.programs("fio", fail + FIO.replace("DIRECTORY", str(turns.directory)))
    result = turns.cbt(campaign(turns))
    assert result.exit_code == 1
    assert result.output.count("(rebuild") == 2
    states = [json.loads(p.read_text()) for p in turns.archive.glob("results/0*/id-*/cell.json")]
    assert [state["state"] for state in states].count("failed") == 1
    deployments = {state.get("deployment") for state in states if state["state"] == "finished"}
    assert len(deployments) == 1


def test_without_turns_each_cell_stops_by_itself(turns: Any) -> None:
    path = campaign(turns)
    path.write_text(path.read_text().replace("  order: interleaved\n", ""))
    result = turns.cbt(path)
    assert result.exit_code == 0, result.output
    done = measured(turns)
    assert [name for _, name in done] == [name for name in "ABC" for _ in range(4)]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rebuild": "scenario"}, "say rebuild: needed"),
        ({"use_existing": True}, "with use_existing leave it out"),
        ({"rebuild_every_test": True}, "say rebuild: needed"),
        ({"iterations": 2}, "must be 1 where time is a precision"),
    ],
)
def test_what_does_not_go_together(turns: Any, changes: dict[str, Any], sentence: str) -> None:
    cluster = {"rebuild": "needed", "order": "interleaved", **changes}
    path = turns.write(cluster=cluster, benchmarks={"rbd_single_client": {"time": TIME}})
    result = turns.cbt(path)
    assert result.exit_code == 2
    assert sentence in result.output


def test_what_was_predicted_is_kept_and_the_next_start_leaves_it(turns: Any) -> None:
    """The archive of the first campaign predicts the second one, which is of the same shape."""
    path = campaign(turns)
    path.write_text(path.read_text().replace("    C:\n      turn:\n        number: 2\n", ""))
    turns.cbt(path)
    assert len(measured(turns)) == 12
    pilot = turns.archive.rename(turns.directory / "pilot")
    result = turns.cbt(path, "--like", pilot)
    assert f"Judging by {pilot}, it takes about" in result.output
    kept = json.loads((turns.archive / "results" / "prediction.json").read_text())
    assert kept["like"] == "pilot" and 0 < kept["low"] <= kept["seconds"] <= kept["high"]
    result = turns.cbt(path, "--like", turns.archive, "--again", "B*round 6")
    assert result.output.count("] cell ") == 2, result.output
    again = json.loads((turns.archive / "results" / "prediction.json").read_text())
    assert again == kept


def test_at_a_rate_it_is_the_latency_that_must_be_known(turns: Any) -> None:
    """The file sets the IOPS, so that their percent says nothing and is known at once."""
    result = turns.cbt(campaign(turns, rate=1000, time={**TIME, "max": 14}))
    assert result.exit_code == 0, result.output
    assert {turn for turn, _ in measured(turns)} == set(range(7))
    blocks = [
        json.loads((turns.archive / cell["path"] / "cell.json").read_text())["block"]
        for cell in plan_of(turns)["cells"]
    ]
    assert {block["iops"]["read"] for block in blocks} == {1000.0}
    assert len({block["clat_ns_mean"]["read"] for block in blocks}) > 6
