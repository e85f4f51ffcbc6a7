from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbt_crypto.archive.documents import CellDocument
from cbt_crypto.archive.files import Malformed
from cbt_crypto.archive.folder import Folder
from cbt_crypto.results.cell.hardware_counters import (
    HostEnergy,
    energy_of_osds,
    energy_used,
    read_energy,
    watts_per_second,
)
from cbt_crypto.results.cell.window import Window

pytestmark = pytest.mark.unit

RANGE = 262_143_328_850
HEADER = (
    f"# zone intel-rapl:0 {RANGE} package-0\n"
    f"# zone intel-rapl:0:0 {RANGE} core\n"
    f"# zone intel-rapl:0:1 65000000000 dram\n"
    f"# zone intel-rapl:1 {RANGE} psys\n"
)


def _text(seconds: int, package_w: float = 100.0, dram_w: float = 10.0, begin: int = 0) -> str:
    """Samples from 1000 s on; the core takes half of the package, psys twice."""
    lines = []
    for second in range(seconds + 1):
        package = (begin + round(package_w * 1e6) * second) % RANGE
        dram = round(dram_w * 1e6) * second % 65_000_000_000
        lines.append(f"{1000 + second}.500000000 {package} {package // 2} {dram} {package // 3}\n")
    return HEADER + "".join(lines)


@pytest.fixture
def read(tmp_path):
    def from_text(text: str):
        (tmp_path / "energy.osd0").write_text(text)
        return read_energy(tmp_path / "energy.osd0")

    return from_text


def test_packages_and_memory_count_and_nothing_twice(read):
    series = read(_text(20))
    assert series.joules.tolist() == pytest.approx([110.0 * second for second in range(21)])
    use = HostEnergy("osd0", series, 0.0).use(Window(1002.0, 1012.0))
    assert use is not None
    assert (use.seconds, use.joules, use.watts) == pytest.approx((10, 1100, 110))


def test_two_packages_are_two(read):
    text = _text(10).replace(" psys", " package-1")
    assert read(text).joules[-1] == pytest.approx(10 * (100 + 10) + 10 * 100 / 3, rel=1e-6)


def test_a_counter_that_begins_anew(read):
    series = read(_text(20, begin=RANGE - 550_000_000))
    assert series.joules.tolist() == pytest.approx([110.0 * second for second in range(21)])


def test_the_edges_of_the_window_lie_between_samples(read):
    text = "".join(
        f"{1000 + second}.0 {50_000_000 * second * second} 0 0 0\n" for second in range(9)
    )
    host = HostEnergy("osd0", read(HEADER + text), 0.0)
    use = host.use(Window(1002.5, 1004.0))
    assert use is not None
    # 50 J x second^2, straight between samples
    assert use.joules == pytest.approx(50 * (16 - (4 + 9) / 2))


def test_a_clock_that_is_ahead_is_brought_back(read):
    late = "".join(f"{1000 + s}.0 {50_000_000 * s * s} 0 0 0\n" for s in range(9))
    host = HostEnergy("osd0", read(HEADER + late), 2.0)
    use = host.use(Window(1000.0, 1002.0))
    assert use is not None
    assert use.joules == pytest.approx(50 * (16 - 4))


def test_the_power_of_each_second_is_of_all_hosts(read):
    host = HostEnergy("osd0", read(_text(20)), 0.0)
    watts = watts_per_second([host, host], Window(1002.0, 1006.0))
    assert watts is not None
    assert watts.tolist() == pytest.approx([220.0] * 4)
    assert watts_per_second([], Window(1002.0, 1006.0)) is None


def test_a_window_without_samples_has_no_energy(read):
    host = HostEnergy("osd0", read(_text(20)), 0.0)
    assert host.use(Window(2000.0, 2010.0)) is None
    assert host.use(Window(900.0, 910.0)) is None


def test_a_gap_may_hide_a_turn_of_the_counter(read):
    lines = _text(120, 1.0, 1.0).splitlines(keepends=True)
    # 65 kJ of memory last for 13 s at 5 kW
    short, long = (read("".join(lines[:20] + lines[first:])) for first in (32, 34))
    assert HostEnergy("osd0", short, 0.0).use(Window(1000.5, 1100.0)) is not None
    assert HostEnergy("osd0", long, 0.0).use(Window(1000.5, 1100.0)) is None
    assert HostEnergy("osd0", long, 0.0).use(Window(1040.0, 1100.0)) is not None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: "", "no zone of a package"),
        (lambda text: HEADER, "fewer than two samples"),
        (lambda text: text.replace("package-0", "uncore").replace("dram", "x"), "no zone of a pac"),
        (lambda text: text.replace("intel-rapl:0:0 ", ""), "names no zone and its range"),
        (lambda text: text.replace(str(RANGE), "0"), "has no range"),
        (lambda text: text.replace("65000000000 dram", "0x7f dram"), "a counter that is no number"),
        (lambda text: text.replace("1003.5", "1001.5"), "whose times go backwards"),
        (lambda text: text.replace("1003.5", "nan"), "is no number"),
        (lambda text: text.replace("300000000 ", f"{RANGE + 1} ", 1), "beyond its range"),
        (lambda text: text.replace("300000000 ", "100000 ", 1), "jumps by more than 5000 W"),
        (lambda text: text.replace("300000000 ", "", 1), "not a time and 4 counters"),
        (lambda text: text.replace("300000000 ", "-5 ", 1), "is no number"),
    ],
)
def test_what_cannot_be_trusted_says_why(read, change, reason):
    with pytest.raises(Malformed, match=reason):
        read(change(_text(10)))


@given(st.integers(0, 2000))
def test_samples_that_are_cut_anywhere_are_a_part_of_the_same(tmp_path_factory, cut):
    path = tmp_path_factory.getbasetemp() / "energy.cut"
    path.write_text(_text(20))
    whole = read_energy(path)
    path.write_text(_text(20)[:cut])
    try:
        part = read_energy(path)
    except Malformed:
        return
    count = len(part.joules)
    assert part.joules.tolist() == whole.joules[:count].tolist()
    assert part.epoch_s.tolist() == whole.epoch_s[:count].tolist()


def _cell(*hosts: str) -> CellDocument:
    return CellDocument(
        format=1, id="c", scenario="s", configuration="A", state="finished", osd_hosts=hosts
    )


def test_all_osd_hosts_or_no_figure(tmp_path):
    (tmp_path / "energy.osd0").write_text(_text(20))
    window = Window(1002.0, 1012.0)
    problems = []
    counted = energy_of_osds(Folder(tmp_path), _cell("osd0"), problems)
    (use,) = energy_used(counted, _cell("osd0"), window, problems)
    assert use.host == "osd0" and problems == []
    two = _cell("osd0", "osd1")
    assert energy_used(energy_of_osds(Folder(tmp_path), two, problems), two, window, problems) == ()
    assert [str(one) for one in problems] == [
        "energy was not counted on osd1, so there is no figure of it"
    ]


def test_machines_without_counters_are_no_problem(tmp_path):
    problems = []
    assert energy_of_osds(Folder(tmp_path), _cell("osd0", "osd1"), problems) == []
    assert problems == []


def test_what_is_damaged_or_too_short_is_said(tmp_path):
    (tmp_path / "energy.osd0").write_text("hello\n")
    (tmp_path / "energy.osd1").write_text(_text(3))
    cell, problems = _cell("osd0", "osd1"), []
    counted = energy_of_osds(Folder(tmp_path), cell, problems)
    assert energy_used(counted, cell, Window(1000.0, 1020.0), problems) == ()
    assert [str(one) for one in problems] == [
        "energy.osd0 has no zone of a package or of memory",
        "osd1: the record of its energy covers 3 of 20 s",
    ]
