"""`monitoring`: profiles run while they should, on the hosts of their roles, and end."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.contract

Make = Callable[..., Any]

#: Notes how it was called and, by a file that it makes again and again, that it is running.
#: As collectl it writes a sample, for which the start waits.
_FAKE = """
echo "$0 $*" >> {log}
case $0 in
    */collectl) for word; do :; done; printf '# head\\n>>> 1 <<<\\n' > "$word/c0.raw" ;;
esac
n=0; while [ $n -lt 1000 ]; do touch {log}.running; sleep 0.02; n=$((n+1)); done
"""
#: One host with every role: as all hosts are this machine, more of them would share their files.
ONE = {
    "head": "c0",
    "clients": ["c0"],
    "osds": ["c0"],
    "mons": {"head": ..., "c0": {"a": "10.0.0.1"}},
}


@pytest.fixture
def fakes(programs: Callable[[str, str], Path], tmp_path: Path) -> Path:
    """collectl and perf that note their calls in this file."""
    log = tmp_path / "monitors"
    for name in ("collectl", "perf", "my perf"):
        programs(name, _FAKE.format(log=log))
    return log


def running(log: Path) -> bool:
    mark = Path(f"{log}.running")
    mark.unlink(missing_ok=True)
    for _ in range(15):
        time.sleep(0.02)
        if mark.exists():
            return True
    return False


def calls(log: Path, count: int) -> list[str]:
    """The calls so far, when there are that many; monitors start in the background."""
    for _ in range(200):
        lines = log.read_text().splitlines() if log.exists() else []
        if len(lines) >= count:
            break
        time.sleep(0.02)
    return sorted(line.rpartition("/bin/")[2] for line in lines)


def test_collectl_always_runs_and_ends(own_bench: Make, fakes: Path, shims: Any) -> None:
    made = own_bench(cluster=ONE)
    run_dir = str(made.tmp_dir / "run 1")
    made.engine.monitoring.start(run_dir)
    noted = calls(fakes, 1)
    assert running(fakes)
    made.engine.monitoring.stop(run_dir)
    assert not running(fakes)
    assert noted == [f"collectl -s+mYZ -i 1:10 -F0 --nohup -f {run_dir}/collectl"]


def test_the_start_waits_for_the_first_sample(
    bench: Make, programs: Callable[[str, str], Path], shims: Any
) -> None:
    late = """for word; do :; done
        (echo '# Collectl'; sleep 0.7; echo '>>> 1795186054.001 <<<'; sleep 60) |
            while read -r line; do echo "$line" | gzip; done > "$word/c0.raw.gz\""""
    programs("collectl", late)
    made = bench(cluster=ONE)
    with made.engine.monitoring.monitor(f"{made.tmp_dir}/run"):
        written = gzip.decompress((made.tmp_dir / "run/collectl/c0.raw.gz").read_bytes())
        assert written == b"# Collectl\n>>> 1795186054.001 <<<\n"


def test_on_which_hosts(own_bench: Make, programs: Callable[[str, str], Path], shims: Any) -> None:
    for name in ("collectl", "perf"):
        programs(name, ":")
    made = own_bench(monitoring_profiles={"perf": {"nodes": ["head", "osds"]}})
    made.engine.monitoring.start(f"{made.tmp_dir}/run")
    hosts = [call[call.index("-w") + 1] for call in shims.calls("pdsh")]
    made.engine.monitoring.stop()
    assert hosts == ["c0,c1,o0,o1,head", "head,o0,o1"]


def test_a_profile_says_where_and_how(own_bench: Make, fakes: Path) -> None:
    profiles = {
        "collectl": {"args": "-i 2 --sep ' '"},
        "perf": {"perf_cmd": "my perf", "args": "stat -e cycles"},
    }
    made = own_bench(cluster=ONE, monitoring_profiles=profiles)
    run_dir = made.tmp_dir / "run"
    with made.engine.monitoring.monitor(str(run_dir)):
        noted = calls(fakes, 2)
    assert noted == [
        f"collectl -i 2 --sep   -F0 --nohup -f {run_dir}/collectl",
        f"my perf stat -e cycles -o {run_dir}/perf/perf.out",
    ]
    assert not running(fakes)


def test_a_monitor_ends_when_its_block_does_not_end_well(own_bench: Make, fakes: Path) -> None:
    made = own_bench(cluster=ONE)
    with pytest.raises(KeyboardInterrupt), made.engine.monitoring.monitor(f"{made.tmp_dir}/run"):
        calls(fakes, 1)
        raise KeyboardInterrupt
    assert not running(fakes)


def test_without_a_directory_all_are_ended(own_bench: Make, fakes: Path) -> None:
    made = own_bench(cluster=ONE)
    for number in (1, 2):
        made.engine.monitoring.start(f"{made.tmp_dir}/run{number}")
    calls(fakes, 2)
    made.engine.monitoring.stop()
    assert not running(fakes)
    made.engine.monitoring.stop()


def test_stopping_what_never_ran_is_no_error(bench: Make, fakes: Path) -> None:
    made = bench()
    made.engine.monitoring.stop(f"{made.tmp_dir}/never")
    assert not fakes.exists()


def test_a_lead_is_long_enough_for_a_first_sample(
    bench: Make, programs: Callable[[str, str], Path], shims: Any
) -> None:
    late = """for word; do :; done
        sleep 0.3; : > "$word/c0.raw.gz"; sleep 60"""
    programs("collectl", late)
    made = bench(cluster=ONE)
    began = time.monotonic()
    with made.engine.monitoring.monitor(f"{made.tmp_dir}/run", 3):
        assert (made.tmp_dir / "run/collectl/c0.raw.gz").exists()
        assert time.monotonic() - began < 5
