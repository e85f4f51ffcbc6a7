"""An OSD that is taken out while clients work, and comes back: what recovery costs them."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.errors import HostError, RunError
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import Site
from cbt_crypto.run import recovery_on_host

#: What it prints, in this order, each line a JSON object with one of them.
STEPS = ("out_at", "clean_after_out_s", "in_at", "clean_after_in_s")


@contextlib.contextmanager
def running(scenario: Scenario, remote: Remote, site: Site) -> Iterator[dict[str, Any]]:
    """Take an OSD out and in during the block; RunError if it was not clean before its end."""
    recovery: dict[str, Any] = {}
    after_s = scenario.osd_out_after_s
    if after_s is None:
        yield recovery
        return
    stop = {site.head: stop_script(site)}
    begin = scenario.ramp + after_s
    try:
        start = start_script(site, begin)
        remote.run({site.head: start}, "start the recovery", 60)
        yield recovery
    except BaseException:
        with contextlib.suppress(HostError):
            remote.run(stop, "take the OSD in again", 120)
        raise
    printed = remote.run(stop, "take the OSD in again", 120)[site.head]
    recovery.update(parsed(printed), osd=osd_of(site))
    why = fault(recovery, begin)
    if why:
        raise RunError(why)
    recovery.pop("error", None)


def pid_file(site: Site) -> str:
    """Of the program on the head."""
    return f"{site.tmp_dir}/recovery.pid"


def start_script(site: Site, after_s: int) -> str:
    """Shell text for the head: the last OSD goes out after so many seconds, and in when clean."""
    asked = {"conf": site.conf, "osd": osd_of(site), "after_s": after_s}
    output = f"{site.tmp_dir}/recovery.out"
    ceph = shlex.quote(shlex.split(site.ceph_cmd)[0])
    run = (
        # The first line of `ceph` names the interpreter that has librados.
        f"python=$(sed -n '1s/^#! *//p' \"$(command -v {ceph})\")\n"
        f"cat > {shlex.quote(site.tmp_dir)}/recovery.py <<'PROGRAM'\n"
        f"{shell.program(recovery_on_host)}PROGRAM\n"
    )
    program = f"{shlex.quote(site.tmp_dir)}/recovery.py {shlex.quote(json.dumps(asked))}"
    return run + shell.start_in_background(
        f"${{python:-python3}} {program}", pid_file(site), output
    )


def stop_script(site: Site) -> str:
    """Shell text for the head: end it, print what it said, have the OSD in. Safe to repeat."""
    osd = osd_of(site)
    why = f"osd.{osd} is still out; take it in with 'ceph osd in {osd}': $said"
    back = (
        f"said=$(timeout 60 {site.ceph_command} osd in {osd} 2>&1 > /dev/null) || "
        f'{{ echo "{why}" >&2; exit 1; }}'
    )
    return (
        f"{shell.stop_in_background(pid_file(site), ('TERM', 'KILL'))}\n"
        f"cat {shlex.quote(site.tmp_dir)}/recovery.out 2>/dev/null || :\n{back}"
    )


def osd_of(site: Site) -> int:
    """The OSD that goes out: the one of the highest number."""
    return max(osd.id for osd in site.osds)


def check_under_load(known: Mapping[str, Any], load_from: float) -> None:
    """Raise RunError where the OSD went out before the workload was past its ramp, at that time."""
    if known["out_at"] < load_from:
        early = load_from - known["out_at"]
        raise RunError(
            f"the OSD went out {early:.1f} s before the workload was past its ramp, as it "
            "started late; make recovery longer"
        )


def parsed(printed: str) -> dict[str, Any]:
    """What `stop` printed, by step; `error` where the program failed."""
    steps: dict[str, Any] = {}
    for line in printed.splitlines():
        try:
            document = json.loads(line)
        except ValueError:
            steps["error"] = line.strip() or steps.get("error")
            continue
        if isinstance(document, Mapping):
            steps.update({key: value for key, value in document.items() if key in STEPS})
    return steps


def fault(known: Mapping[str, Any], after_s: int) -> Optional[str]:
    """Why there are no figures of a recovery; None when it came to its end under the workload."""
    missing = next((step for step in STEPS if step not in known), None)
    if missing is None:
        return None
    if known.get("error"):
        return f"the recovery could not be followed: {known['error']}"
    if missing == "out_at":
        return f"the workload ended before an OSD went out, after {after_s} s; make time longer"
    when = "out" if missing == "clean_after_out_s" else "in again"
    return (
        f"the workload ended before all placement groups were clean with the OSD {when}; make time "
        "longer, or volumes smaller"
    )
