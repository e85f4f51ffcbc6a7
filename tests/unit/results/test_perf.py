from __future__ import annotations

import pytest

from cbt_crypto.archive.files import Malformed
from cbt_crypto.archive.folder import Folder
from cbt_crypto.results.cell.hardware_counters import crypto_percent, parse_perf_stat, read_perf
from cbt_crypto.results.cell.window import Window

pytestmark = pytest.mark.unit

#: Written as perf 6.1 prints it on a machine with hardware counters; an hour ahead of UTC.
COUNTED = """\
# started on Tue Nov 14 23:13:20 2023

#           time             counts unit events
     1.001054360            2082.48 msec cpu-clock         #    2.082 CPUs utilized
     1.001054360      1,000,000,000      cycles            #    0.480 GHz
     1.001054360        500,000,000      instructions      #    0.50  insn per cycle
     2.001054360      3,000,000,000      cycles            #    3.000 GHz
     2.001054360      6,000,000,000      instructions      #    2.00  insn per cycle
     3.001054360      5,000,000,000      cycles            #    5.000 GHz
     3.001054360      9,000,000,000      instructions      #    1.80  insn per cycle
"""
STARTED = 1_700_000_000.0  # 22:13:20 UTC


def _folder(tmp_path, text):
    folder = tmp_path / "perf.osd0"
    folder.mkdir()
    (folder / "perf.out").write_text(text)
    return Folder(tmp_path).below("perf.osd0")


def test_only_the_intervals_of_the_window_count(tmp_path):
    window = Window(STARTED + 1.0, STARTED + 3.0)
    folder = _folder(tmp_path, COUNTED)
    use = read_perf(folder, "osd0", window, STARTED - 0.4)
    assert use is not None
    assert use.per_second["cycles"] == pytest.approx(4e9, rel=0.002)
    use = read_perf(folder, "osd0", Window(STARTED + 1.5, STARTED + 2.1), STARTED)
    assert use is not None
    shares = (0.50105436 / 0.6, 0.09894564 / 0.6)
    cycles, instructions = (shares[0] * a + shares[1] * b for a, b in ((3e9, 5e9), (6e9, 9e9)))
    assert use.per_second == pytest.approx({"cycles": cycles, "instructions": instructions})


@pytest.mark.parametrize("thousands", [".", "\u2019", "\u202f", "'"])
def test_a_number_of_another_language_is_none(tmp_path, thousands):
    """Of 1.000.000.000 cycles, as a German perf writes them, one was counted."""
    folder = _folder(tmp_path, COUNTED.replace(",", thousands))
    use = read_perf(folder, "osd0", Window(STARTED + 1.0, STARTED + 3.0), STARTED - 0.4)
    assert use is None or use.per_second == {}


def test_what_surrounds_a_number_in_a_list_is_not_of_it():
    assert parse_perf_stat("  \x1f 1.5,7\x1f,,cycles,1,100\n").parts[0].counts == {"cycles": 7.0}


def test_totals_without_intervals(tmp_path):
    text = """\
 Performance counter stats for 'system wide':

     8,000,000,000      cycles:u                 #    3.205 GHz
     2,000,000,000      instructions             #    1.25  insn per cycle

       4.000000000 seconds time elapsed
"""
    use = read_perf(_folder(tmp_path, text), "osd0", Window(0, 1), None)
    assert use is not None
    assert use.per_second == {"cycles": 2e9, "instructions": 5e8}


@pytest.mark.parametrize("name", ["stat_interval.txt", "stat_interval.csv", "stat_total.txt"])
def test_events_that_the_machine_cannot_count_are_none(data, name):
    stat = parse_perf_stat((data / "perf" / name).read_text())
    assert all(part.counts == {} for part in stat.parts)
    assert len(stat.parts) == (1 if "total" in name else 3)


def test_share_of_crypto_symbols(data):
    text = (data / "perf/report.txt").read_text()
    assert crypto_percent(text) == 0
    assert crypto_percent(text.replace("read_zero", "aesni_xts_encrypt")) == 4.61


def test_a_binary_record_says_what_to_do(tmp_path):
    folder = _folder(tmp_path, "PERFILE2\0\0")
    with pytest.raises(Malformed, match=r"perf\.osd0/perf\.out is a binary record; `perf report"):
        read_perf(folder, "osd0", Window(0, 1), None)


def test_totals_that_are_cut_off_are_malformed():
    with pytest.raises(Malformed, match="cut off"):
        parse_perf_stat(" Performance counter stats for 'sleep':\n  5  cycles\n")


def test_a_directory_without_files_of_perf_gives_nothing(tmp_path):
    assert read_perf(_folder(tmp_path, "hello\n"), "osd0", Window(0, 1), None) is None
