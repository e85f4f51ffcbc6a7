"""The hosts of a report: which of them count their energy, and how fast they encrypt in memory."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from lxml import html

from cbt_crypto.cluster_overlays.luks.overlay import Luks
from cbt_crypto.report import build
from cbt_crypto.report.markdown import markdown
from cbt_crypto.report.page import page
from cbt_crypto.report.wording import cipher_speeds, energy_counters, hardware
from cbt_crypto.run.environment import device_script, parse_drives

pytestmark = pytest.mark.unit

HARDWARE = Path(__file__).parents[1] / "data" / "hardware"

#: As a host prints it: two measured ciphers, one that its kernel lacks, and a card's driver.
PRINTED = """\
        aes-xts        512b      1983.0 MiB/s      1979.6 MiB/s
        aes-cbc        256b       695.8 MiB/s      2059.4 MiB/s
    serpent-xts        512b               N/A               N/A
@proc-crypto
name         : xts(aes)
driver       : qat_aes_xts
module       : intel_qat
priority     : 4001
selftest     : passed
internal     : no
async        : yes
"""


def _describe(archive: Path, **hosts: Any) -> Any:
    path = archive / "results/environment.json"
    environment = json.loads(path.read_text())
    for host, facts in hosts.items():
        environment["hosts"][host].update(facts)
    path.write_text(json.dumps(environment))
    return build(archive)


def _luks(printed: str) -> dict[str, Any]:
    return {"overlays": {"luks": Luks().description(printed)}}


def test_ciphers_by_host(small):
    built = _describe(small, osd0=_luks(PRINTED), client0=_luks(""))
    tree = html.fromstring(page(built))
    (region,) = tree.xpath("//div[@aria-label='Speed of ciphers']")
    rows = [
        [cell.text_content() for cell in row.xpath("./th|./td")]
        for row in region.xpath(".//tbody/tr")
    ]
    driver = "qat_aes_xts (intel_qat), asynchronous"
    assert rows == [
        ["osd0", "aes-xts", "512", "1,983", "1,980", driver],
        ["osd0", "aes-cbc", "256", "696", "2,059", ""],
        ["osd0", "serpent-xts", "512", "not on this machine", "not on this machine", ""],
    ]
    assert "client0: cryptsetup benchmark measured no cipher there." in page(built)
    text = markdown(built)
    assert r"| osd0 | aes-xts | 512 | 1,983 | 1,980 | qat\_aes\_xts (intel\_qat), asy" in text
    assert "client0: cryptsetup benchmark measured no cipher there." in text


def test_the_table_of_an_emulated_processor_says_so(small):
    before = markdown(build(small))
    built = _describe(small, osd0={**_luks(PRINTED), "emulated": True})
    (region,) = html.fromstring(page(built)).xpath("//div[@aria-label='Speed of ciphers']")
    assert "emulated CPU" in region.text_content()
    hosts = markdown(built).split("## Hosts")[1]
    assert "emulated CPU" in hosts and "## Hosts" not in before


def test_where_energy_is_counted(small):
    built = _describe(small, osd0={"energy": ["package-0", "dram"]}, client0={"energy": []})
    (region,) = html.fromstring(page(built)).xpath("//div[@aria-label='Hosts']")
    last = {
        row.xpath("./th")[0].text: row.xpath("./td")[-1].text for row in region.xpath(".//tr")[1:]
    }
    assert last == {"osd0": "package-0, dram", "client0": "not on this machine", "client1": None}
    line = "Energy counters (RAPL): client0: not on this machine; osd0: package-0, dram."
    assert line in markdown(built)


@pytest.mark.parametrize("value", [None, 3, "text", [], [3], {"luks": 3}, {"luks": {}}])
def test_whatever_else_stands_there_is_not_recorded(value):
    environment = {"hosts": {"h": {"energy": value or None, "overlays": value}}}
    assert cipher_speeds(environment) == {}
    assert cipher_speeds({"hosts": value}) == energy_counters({"hosts": value}) == {}
    rows = {"benchmark": value, "drivers": value or [{"name": [value]}]}
    assert not any(cipher_speeds({"hosts": {"h": {"overlays": {"luks": rows}}}}).values())


def _osd_host(firmware: str, speed: int = 100_000, uuid: str = "a") -> dict[str, Any]:
    drive = {"model": "INTEL SSDPE2KX080T8", "firmware": firmware, "numa_node": 1}
    return {
        "roles": ["osds"], "kernel": "6.12.0", "aes": True, "vaes": True,
        "command_line": f"BOOT_IMAGE=/vmlinuz root=UUID={uuid} ro mitigations=off",
        "drives": {"/dev/nvme0n1": dict(drive), "/dev/nvme1n1": {**drive, "firmware": "VDV10184"}},
        "networks": {"eth0": {"driver": "mlx5_core", "speed_mbit_per_s": speed}},
    }  # fmt: skip


def test_one_odd_drive_and_one_slow_card_are_found_at_a_glance(small: Path) -> None:
    hosts = {f"osd{n}": _osd_host("VDV10184", uuid=str(n)) for n in range(3)}
    hosts["osd3"] = _osd_host("VDV10182", speed=25_000)
    rows = hardware({"hosts": hosts})
    assert [(row.what, row.value, row.where) for row in rows if row.differs] == [
        ("OSD drive: firmware", "VDV10182", "osd3 /dev/nvme0n1"),
        ("network card: speed mbit per s", "25000", "osd3 eth0"),
    ]
    told = {row.what: row for row in rows if not row.differs}
    assert told["OSD drive: firmware"].where == "7"
    assert told["OSD host: kernel command line"].value == "ro mitigations=off"
    assert told["OSD host: AES instructions"].value == "aes and vaes"
    path = small / "results" / "environment.json"
    path.write_text(json.dumps({"format": 1, "hosts": hosts}))
    built = build(small)
    assert "| **OSD drive: firmware** | **VDV10182** | **osd3 /dev/nvme0n1** |" in markdown(built)
    assert "<b>VDV10182</b>" in page(built)


def test_one_odd_drive_of_real_ones_shows_by_model_and_wear() -> None:
    """Of smartctl on machines of others: see tests/unit/data/hardware/README.md."""
    printed = ""
    for drive, model in enumerate(("samsung", "samsung", "samsung", "intel")):
        smart = json.loads((HARDWARE / f"smartctl_nvme_{model}.json").read_text())
        printed += f"@device /dev/nvme{drive}n1\nmodel {smart['model_name']}\n"
        printed += f"smart {json.dumps(smart)}\n"
    hosts = {"osd0": {"roles": ["osds"], "drives": parse_drives(printed)}}
    odd = {row.what: row for row in hardware({"hosts": hosts}) if row.differs}
    assert odd["OSD drive: model"].value == "INTEL SSDPE2KX020T7"
    assert odd["OSD drive: wear percent"].value == "70 to 79 %"
    assert {row.where for row in odd.values()} == {"osd0 /dev/nvme3n1"}


def test_one_drive_of_older_firmware_is_found_by_what_its_machine_says(tmp_path: Path) -> None:
    """Drives as in openstreetmap/operations, issues 1132 and 1133: one still has what all had."""
    hosts = {}
    for host, firmwares in (("snap-01", ["EDA5602Q"] * 2), ("snap-02", ["EDA5602Q", "EDA5302Q"])):
        for number, firmware in enumerate(firmwares):
            disk = tmp_path / host / f"class/block/nvme{number}n1"
            (disk / "device").mkdir(parents=True)
            # The kernel pads what it prints of an NVMe drive.
            (disk / "device/model").write_text("SAMSUNG MZQLB3T8HALS-00007              \n")
            (disk / "device/firmware_rev").write_text(f"{firmware}\n")
        devices = [f"/dev/nvme{number}n1" for number in range(len(firmwares))]
        script = device_script(devices, str(tmp_path / host))
        printed = subprocess.check_output(["sh", "-euc", script], text=True)
        hosts[host] = {"roles": ["osds"], "drives": parse_drives(printed)}
    rows = hardware({"hosts": hosts})
    assert [(row.what, row.value, row.where) for row in rows if row.differs] == [
        ("OSD drive: firmware", "EDA5302Q", "snap-02 /dev/nvme1n1")
    ]


@pytest.mark.parametrize("value", [3, [], {"h": 3}, {"h": {"drives": {"a": 3}, "roles": 5}}])
def test_hardware_of_any_shape_is_no_error(value: Any) -> None:
    assert hardware({"hosts": value}) == []
