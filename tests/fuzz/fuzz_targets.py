"""Everything that reads what others wrote: from bytes to a value, or to the error that is allowed.

A target that raises anything else, or does not come back, is a finding.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cbt_crypto.archive import documents, files
from cbt_crypto.archive.files import Malformed, read_yaml
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts import ceph_conf, directories
from cbt_crypto.plan.file import read_campaign
from cbt_crypto.plan.steps import plan
from cbt_crypto.results.cell.client import read_client_cpu
from cbt_crypto.results.cell.hardware_counters import crypto_percent, parse_perf_stat, read_energy
from cbt_crypto.results.readers.collectl import read_collectl
from cbt_crypto.results.readers.fio import parse_fio_json, parse_fio_normal
from cbt_crypto.results.readers.fio_log import read_fio_log
from cbt_crypto.results.readers.histogram import read_histogram_log
from cbt_crypto.results.readers.process_output import parse_kbench
from cbt_crypto.results.readers.recording import read_recording
from cbt_crypto.run import journal, take_down
from cbt_crypto.run.locks import describe, is_dead
from cbt_crypto.run.preflight.survey import parts_of
from cbt_crypto.run.resume import check_links

_DATA = Path(__file__).resolve().parents[1] / "unit" / "data"
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Target:
    """What is fuzzed, and real inputs to start from."""

    read: Callable[[bytes], Any]
    seeds: tuple[bytes, ...]

    def __call__(self, data: bytes) -> None:
        try:
            self.read(data)
        except (UsageError, Malformed) as error:
            text = str(error)
            if not text or any(not char.isprintable() for char in text.replace("\n", "")):
                raise AssertionError(f"no sentence: {text!r}") from error


_DIRECTORY = tempfile.TemporaryDirectory(prefix="fuzz-", dir="/dev/shm")
_FILE = Path(_DIRECTORY.name) / "input"
_ARCHIVE = Path(_DIRECTORY.name) / "archive"


def _by_path(read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
    def reader(data: bytes) -> Any:
        _FILE.write_bytes(data)
        return read(_FILE)

    return reader


def _campaign(path: Path) -> Any:
    return plan(read_campaign(path))


def _journal(data: bytes) -> None:
    path = journal.path_of(_ARCHIVE)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    for deployment in journal.left_over(_ARCHIVE):
        deployment.describe()
        describe(deployment.by)
        is_dead(deployment.by)
        deployment.campaign(_ARCHIVE)


def _cleanup(data: bytes) -> None:
    """What `cleanup --foreign --plan` would say of an archive that somebody sent."""
    path = journal.path_of(_ARCHIVE)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    journal.devices_before(_ARCHIVE)
    for deployment in take_down.to_clear(_ARCHIVE, foreign=True):
        if deployment.is_own or deployment.devices:
            raise AssertionError("an archive's word was taken for this user's own")
        for place in journal.places_of(deployment.campaign(_ARCHIVE)).values():
            fault = directories.fault(str(place["tmp_dir"]))
            if fault:
                raise AssertionError(fault)


def _links(data: bytes) -> None:
    """An archive of links, a line each, `name target`; whatever is let through stays inside."""
    root = Path(_DIRECTORY.name) / "links"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for line in data.decode("ascii", "ignore").splitlines()[:8]:
        name, _, target = line.partition(" ")
        with contextlib.suppress(OSError, ValueError):
            place = root / name.replace("/", "_")[:50]
            place.mkdir() if not target else place.symlink_to(target[:200])
    check_links(root)
    for path in root.iterdir():
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
            raise AssertionError(f"{path} leads out")


def _collectl(data: bytes) -> Any:
    _FILE.write_bytes(data if data[:2] == b"\x1f\x8b" else gzip.compress(data, 1))
    return read_collectl(_FILE)


def _document(data: bytes) -> Any:
    parse = documents.parse_document
    readers: tuple[Callable[[bytes], Any], ...] = (
        partial(parse, documents.PlanDocument), partial(parse, documents.CellDocument),
        partial(parse, documents.Proof), partial(parse, documents.Environment),
    )  # fmt: skip
    return readers[data[0] % len(readers) if data else 0](data[1:])


def _perf(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    parse_perf_stat(text)
    crypto_percent(text)


def _seeds(*patterns: str) -> tuple[bytes, ...]:
    paths = sorted(path for pattern in patterns for path in _DATA.glob(pattern))
    return tuple(path.read_bytes() for path in paths)


_CELL = b'{"format": 1, "id": "id-1a2b3c4d", "iteration": 0, "state": "finished", "processes": []}'
_JOURNAL = (
    b'{"format":1,"run":"a","time":1.0,"event":"begin","by":{"pid":1,"host":"h"},'
    b'"hosts":{"h":{"tmp_dir":"/t","mark":"m","devices":["/dev/x"]}},"document":'
    b'{"cluster":{"head":"h","clients":["h"]},"benchmarks":{}},"checkout":null}\n'
    b'{"run":"a","event":"end"}\n'
)
_ENERGY = (
    b"# zone intel-rapl:0 262143328850 package-0\n# zone intel-rapl:0:1 65000000 dram\n"
    b"1700000000.250000000 262143000000 64000000\n1700000001.253000000 77000000 1500000\n"
    b"1700000002.256000000 177000000 4000000\n"
)
_CLIENT_CPU = b"# ticks a second: 100\n1700000000.250 0 0\n1700000001.000 41 12\n"

_KBENCH = (
    b"FIO Benchmark Summary\nIOPS (Read/Write)\n        Random:            7,800 / 4,651\n"
    b"    Sequential:            1,362 / 3,248\nBandwidth in KiB/sec (Read/Write)\n"
    b"        Random:        837,862 / 526,258\n    Sequential:        742,420 / 462,604\n"
    b"Latency in ns (Read/Write)\n        Random:    2,874,734 / 7,031,035\n"
    b"    Sequential:    5,760,606 / 8,754,407\n"
)

TARGETS: dict[str, Target] = {
    "campaign file (YAML)": Target(
        _by_path(_campaign), tuple(p.read_bytes() for p in sorted(_ROOT.glob("configs/*.yaml")))
    ),
    "ceph.conf": Target(
        _by_path(ceph_conf.read), (b"[global]\nms client mode = secure\n[osd.0]\nhost=a\n",)
    ),
    "journal.jsonl": Target(_journal, (_JOURNAL,)),
    "what cleanup takes from a journal": Target(_cleanup, (_JOURNAL,)),
    "links in an archive": Target(_links, (b"a ../b\nb a\nc .\nd /etc\ne\n",)),
    "upstream's YAML": Target(
        read_yaml, (b"cluster: {osds: [a, b]}\n", b"a: &a [x, x]\nb: [*a, *a]\n<<: {c: 1}\n")
    ),
    "cell.json as the campaign reads it": Target(_by_path(files.read_json), (_CELL,)),
    "plan, cell, proof, environment as the report reads them": Target(
        _document, tuple(bytes([n]) + _CELL for n in range(4))
    ),
    "fio's JSON": Target(parse_fio_json, _seeds("fio/*.json", "fio/*.json_normal")),
    "fio's normal output": Target(
        parse_fio_normal, _seeds("fio/*.normal", "fio/*sync.json_normal")
    ),
    "kbench's summaries": Target(parse_kbench, (_KBENCH,)),
    "fio's logs": Target(_by_path(read_fio_log), _seeds("fio/*_iops.log", "fio/*_bw.log")),
    "fio's histogram logs": Target(_by_path(read_histogram_log), _seeds("fio/*_hist.log")),
    "collectl's raw files": Target(_collectl, _seeds("collectl/*.gz")),
    "the samples of RAPL's counters": Target(_by_path(read_energy), (_ENERGY,)),
    "the samples of client processes": Target(_by_path(read_client_cpu), (_CLIENT_CPU,)),
    "recordings": Target(_by_path(read_recording), _seeds("recording/*")),
    "perf stat and perf report": Target(_perf, _seeds("perf/*")),
    "what hosts print to check": Target(
        lambda data: parts_of(data.decode("utf-8", "replace")),
        (b"@cbt-crypto-clock 1.0\n@cbt-crypto-requirement 0\nok\n",),
    ),
}
