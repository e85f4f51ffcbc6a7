"""The environment and limits of OSDs, read from processes that really run."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Callable

import pytest

from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.osd_service import CACHE, CACHE_BYTES, OPEN_FILES, OsdService
from cbt_crypto.hosts.site import Osd, Site

pytestmark = pytest.mark.unit

ABSENT = OsdService.absent()
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

Judge = Callable[..., Any]


def test_it_is_in_the_table_and_stated_everywhere() -> None:
    assert OVERLAYS["osd_service"] is OsdService
    assert (ABSENT.tcmalloc_cache, ABSENT.open_files) == (CACHE_BYTES, OPEN_FILES)


def test_a_change_is_a_restart() -> None:
    assert ABSENT.transition_to(OsdService(tcmalloc_cache=32 << 20)) == Transition.RESTART
    assert ABSENT.transition_to(OsdService()) == Transition.NONE


@pytest.fixture
def started(tmp_path: Path, osd: Callable[..., Osd]) -> Iterator[Callable[[OsdService], Osd]]:
    """Starts a process in place of an OSD, as the engine does: in the background of a shell."""
    place = osd(0, "node2", pid_file=str(tmp_path / "pid"), is_file=True)
    log = tmp_path / "osd's log"
    command = f'sh -c "sleep 60 & echo \\$! > {place.pid_file}" >> "{log}" 2>&1'

    def start(overlay: OsdService) -> Osd:
        environment = {**os.environ, "CBT_CRYPTO_MARK": "mark@host"}
        script = f"set -eu\nSUDO=\n{overlay.wrap_osd(place, command)}"
        subprocess.run(["sh", "-c", script], check=True, env=environment)
        time.sleep(0.1)
        return place

    yield start
    pid = int(Path(place.pid_file).read_text())
    assert b"CBT_CRYPTO_MARK=mark@host" in Path(f"/proc/{pid}/environ").read_bytes()
    os.kill(pid, 9)


def _judge(overlay: OsdService, site: Site, sh: Callable[[str], str]) -> Any:
    looks = [{host: sh(text) for host, text in overlay.probe(site).items()} for _ in range(2)]
    return overlay.judge(site, *looks)


def test_a_real_process_is_proved(
    started: Callable[[OsdService], Osd], site_of: Callable[..., Site], sh: Callable[[str], str]
) -> None:
    site = site_of(started(ABSENT))
    verdict = _judge(ABSENT, site, sh)
    assert verdict.proved, verdict.reason
    assert verdict.evidence["osd.0"]["environment"][CACHE] == str(CACHE_BYTES)
    few = "" if HARD >= OPEN_FILES else f", but only {HARD} open files"
    assert few in verdict.reason
    own = "root" if os.geteuid() == 0 else f"uid {os.geteuid()}"
    assert verdict.evidence["osd.0"]["user"] == own
    assert ("run as" in verdict.reason) == (own != "root")
    other = _judge(OsdService(tcmalloc_cache=32 << 20), site, sh)
    assert not other.proved
    assert f"it runs with {CACHE}={CACHE_BYTES} and not {32 << 20}" in other.reason


def test_other_values_reach_the_process(
    started: Callable[[OsdService], Osd], site_of: Callable[..., Site], sh: Callable[[str], str]
) -> None:
    overlay = OsdService(tcmalloc_cache=32 << 20, open_files=2048)
    verdict = _judge(overlay, site_of(started(overlay)), sh)
    assert verdict.proved, verdict.reason
    assert verdict.evidence["osd.0"]["open_files"] == "2048"


def test_too_many_open_files_are_refused_before_anything_starts(
    site_of: Callable[..., Site], osd: Callable[..., Osd], sh: Callable[[str], str]
) -> None:
    few, many = (
        OsdService(open_files=files).requirements(site_of(osd(0, "node2", is_file=True)))[0]
        for files in (1024, 1 << 30)
    )
    assert few.judge(sh(few.script)) is None
    assert "cannot get 1073741824 open files there; leave" in str(many.judge(sh(many.script)))


FACTS = {
    "pid": 7, "user_id": 0, "user": "root", "environment": {CACHE: str(CACHE_BYTES)},
    "open_files": str(OPEN_FILES), "open_files_allowed": str(OPEN_FILES),
}  # fmt: skip


@pytest.mark.parametrize(
    ("overlay", "change", "fault"),
    [
        (ABSENT, {}, None),
        (OsdService(), {}, None),
        (OsdService(), {"environment": {CACHE: str(CACHE_BYTES), "LD_PRELOAD": ""}}, None),
        (
            OsdService(),
            {"environment": {CACHE: str(CACHE_BYTES), "LD_PRELOAD": "/x.so"}},
            "it runs with LD_PRELOAD=/x.so, which a service does not have",
        ),
        (ABSENT, {"environment": {}}, f"it runs with {CACHE}= and not {CACHE_BYTES}"),
        (ABSENT, {"open_files": "1024"}, "it may open 1024 files and not 1048576"),
        (ABSENT, {"open_files": "4096", "open_files_allowed": "4096"}, None),
        (OsdService(), {"open_files": "4096", "open_files_allowed": "4096"}, "may open 4096"),
        (ABSENT, {"open_files": "2000000", "open_files_allowed": "2000000"}, "may open 2000000"),
    ],
)
def test_judgement(
    site_of: Callable[..., Site], osd: Callable[..., Osd],
    overlay: OsdService, change: Mapping[str, Any], fault: Any,
) -> None:  # fmt: skip
    site = site_of(osd(0, "node2"))
    looks = {"node2": json.dumps({"osd.0": {**FACTS, **change}})}
    for pair in ((looks, {"node2": json.dumps({"osd.0": FACTS})}), (looks, looks)):
        verdict = overlay.judge(site, *pair)
        assert verdict.proved == (fault is None), verdict.reason
        assert fault is None or fault in verdict.reason


def test_it_says_as_whom_they_run_where_that_is_not_root(
    site_of: Callable[..., Site], osd: Callable[..., Osd]
) -> None:
    looks = {"node2": json.dumps({"osd.0": {**FACTS, "user_id": 64045, "user": "ceph"}})}
    verdict = ABSENT.judge(site_of(osd(0, "node2")), looks, looks)
    assert verdict.proved
    assert "environment and limits of a service, and run as ceph" in verdict.reason


@pytest.mark.parametrize("printed", ["", "null", "3", '{"osd.0": {}}'])
def test_silence_proves_nothing(
    site_of: Callable[..., Site], osd: Callable[..., Osd], printed: str
) -> None:
    assert not ABSENT.judge(site_of(osd(0, "node2")), {"node2": printed}, {}).proved
