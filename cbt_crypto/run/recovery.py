"""An OSD that goes out while clients work, and comes back; or a scrub: what either costs them."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from cbt_crypto.benchmarks.base import Disturbance, Scenario
from cbt_crypto.errors import HostError, RunError
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import Site
from cbt_crypto.run import recovery_on_host

#: What the program prints, in this order, each line a JSON object with some of them.
STEPS = ("out_at", "clean_after_out_s", "in_at", "clean_after_in_s")
SCRUB_STEPS = ("groups", "scrub_at", "scrubbed_after_s")


@contextlib.contextmanager
def running(scenario: Scenario, remote: Remote, site: Site) -> Iterator[dict[str, Any]]:
    """Do the scenario's disturbance during the block; RunError if it had not ended by then."""
    known: dict[str, Any] = {}
    if scenario.disturbance is None:
        yield known
        return
    kind, after_s = scenario.disturbance
    begin = scenario.ramp + after_s
    stop = {site.head: stop_script(site, kind)}
    what = f"end the {kind.replace('_', ' ')}"
    try:
        remote.run({site.head: start_script(site, begin, kind)}, "start what disturbs", 60)
        yield known
    except BaseException:
        with contextlib.suppress(HostError):
            remote.run(stop, what, 120)
        raise
    printed = remote.run(stop, what, 120)[site.head]
    is_recovery = kind == "recovery"
    known.update(parsed(printed), **({"osd": osd_of(site)} if is_recovery else {}))
    why = fault(known, begin, STEPS if is_recovery else SCRUB_STEPS)
    if why:
        raise RunError(why)
    known.pop("error", None)
    if not is_recovery:
        known["deep"] = kind == "deep_scrub"


def pid_file(site: Site) -> str:
    """Of the program on the head."""
    return f"{site.tmp_dir}/recovery.pid"


def start_script(site: Site, after_s: int, kind: Disturbance) -> str:
    """Shell text for the head: begin after `after_s` seconds."""
    asked = {"conf": site.conf, "osd": osd_of(site), "after_s": after_s, "kind": kind}
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


# What was killed could not set again what it had unset, and has told.
_FLAGS = """\
for flag in $(sed -n 's/^{{"unset": "\\([a-z -]*\\)"}}$/\\1/p' {out} 2>/dev/null || :); do
    said=$(timeout 60 {site.ceph_command} osd set "$flag" 2>&1 > /dev/null) ||
        {{ echo "the flag $flag is unset; set it with 'ceph osd set $flag': $said" >&2; exit 1; }}
done"""


def stop_script(site: Site, kind: Disturbance = "recovery") -> str:
    """Shell text for the head: end it, print what it said, undo what it did. Safe to repeat."""
    end = shell.stop_in_background(pid_file(site), ("TERM", "KILL"))
    end += f"\ncat {shlex.quote(site.tmp_dir)}/recovery.out 2>/dev/null || :"
    if kind != "recovery":
        return f"{end}\n{_FLAGS.format(out=f'{shlex.quote(site.tmp_dir)}/recovery.out', site=site)}"
    osd = osd_of(site)
    why = f"osd.{osd} is still out; take it in with 'ceph osd in {osd}': $said"
    back = (
        f"said=$(timeout 60 {site.ceph_command} osd in {osd} 2>&1 > /dev/null) || "
        f'{{ echo "{why}" >&2; exit 1; }}'
    )
    return f"{end}\n{back}"


def osd_of(site: Site) -> int:
    """The OSD that goes out: the one of the highest number."""
    return max(osd.id for osd in site.osds)


def check_under_load(known: Mapping[str, Any], load_from: float) -> None:
    """Raise RunError where it began before the workload was past its ramp, at that time."""
    began, what = known.get("scrub_at"), "scrubbing began"
    if began is None:
        began, what = known["out_at"], "the OSD went out"
    if not began >= load_from:
        raise RunError(
            f"{what} {load_from - began:.1f} s before the workload was past its ramp, as it "
            f"started late; make {'recovery' if 'out_at' in known else 'scrub'} longer"
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
            steps.update(
                {key: value for key, value in document.items() if key in (*STEPS, *SCRUB_STEPS)}
            )
    return steps


#: The first step that is missing -> what the workload ended before.
_UNFINISHED = {
    "out_at": "an OSD went out, after {} s; make time longer",
    "groups": "scrubbing began, after {} s; make time longer",
    "scrubbed_after_s": "all placement groups were scrubbed; make time longer, or volumes smaller",
    **{
        step: f"all placement groups were clean with the OSD {when}; make time longer, or volumes "
        "smaller"
        for step, when in (("clean_after_out_s", "out"), ("clean_after_in_s", "in again"))
    },
}


def fault(known: Mapping[str, Any], after_s: int, steps: Sequence[str] = STEPS) -> Optional[str]:
    """Why there are no figures; None when it came to its end under the workload."""
    missing = next((step for step in steps if step not in known), None)
    if missing is None:
        return None
    if known.get("error"):
        what = "recovery" if steps is STEPS else "scrub"
        return f"the {what} could not be followed: {known['error']}"
    ended = _UNFINISHED.get(missing, _UNFINISHED["clean_after_in_s"])
    return f"the workload ended before {ended.format(after_s)}"
