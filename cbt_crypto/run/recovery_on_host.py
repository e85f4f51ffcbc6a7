"""Take an OSD out until all is clean, or scrub all. Runs on the head: Python 3.6.

Only SIGKILL leaves the OSD out, or flags unset.
"""

import json
import signal
import sys
import time
from typing import Any, Dict, List, Set, Tuple

#: Up to this number, placement groups are asked one by one; the manager's list is 5 s old.
DIRECT = 512
#: How often they are asked.
EVERY_S = 0.5


def tell(**what: float) -> None:
    """One line, at once: who reads it may end this program before its end."""
    print(json.dumps(what))
    sys.stdout.flush()


def mon(cluster: Any, prefix: str, **arguments: object) -> Any:
    """The answer of a monitor, from JSON."""
    command = dict(arguments, prefix=prefix, format="json")
    status, out, text = cluster.mon_command(json.dumps(command), b"")
    if status:
        sys.exit(f"ceph {prefix}: {text or status}")
    return json.loads(out) if out.strip() else {}


def groups(cluster: Any) -> List[str]:
    """Every placement group."""
    pools = mon(cluster, "osd dump")["pools"]
    return [f"{pool['pool']}.{n:x}" for pool in pools for n in range(pool["pg_num"])]


def clean_ones(cluster: Any, pgs: Set[str], epoch: int) -> Set[str]:
    """Those that are clean, and know of the map of that epoch."""
    if len(pgs) > DIRECT:
        status, out, _ = cluster.mgr_command(
            json.dumps({"prefix": "pg dump", "dumpcontents": ["pgs"], "format": "json"}), b""
        )
        stats = json.loads(out) if status == 0 and out else []
        stats = stats.get("pg_stats", []) if isinstance(stats, dict) else stats
        states = {pg["pgid"]: (pg["state"], int(pg["reported_epoch"])) for pg in stats}
    else:
        states = {pgid: queried(cluster, pgid) for pgid in pgs}
    return {
        pgid
        for pgid in pgs
        if states.get(pgid, ("", 0))[0].startswith("active+clean") and states[pgid][1] >= epoch
    }


def query(cluster: Any, pgid: str) -> Dict[str, Any]:
    """What a group says of itself; empty where it does not answer."""
    ask = json.dumps({"prefix": "query", "pgid": pgid, "format": "json"})
    status, out, _ = cluster.pg_command(pgid, ask, b"")
    return dict(json.loads(out)) if status == 0 and out else {}


def queried(cluster: Any, pgid: str) -> Any:
    """The state of a group and the epoch it knows, by its own word."""
    about = query(cluster, pgid)
    return about.get("state", ""), int(about.get("epoch", 0))


def scrub(cluster: Any, kind: str) -> None:
    """Scrub every placement group; tell when all of them say that they were since then."""
    pgs = groups(cluster)
    stamp = f"last_{kind}_stamp"

    def stamps(asked: Set[str]) -> Dict[str, Any]:
        said = {pgid: query(cluster, pgid) for pgid in asked}
        return {pgid: about["info"]["stats"][stamp] for pgid, about in said.items() if about}

    missing = set(pgs)
    before = stamps(missing)
    told, began = time.time(), time.monotonic()
    for pgid in pgs:
        ask = {"prefix": "pg " + kind.replace("_", "-"), "pgid": pgid}
        status, _, text = cluster.mgr_command(json.dumps(ask), b"")
        if status:
            sys.exit("ceph {} {}: {}".format(ask["prefix"], pgid, text or status))
    tell(groups=len(pgs), scrub_at=told)
    while missing:
        time.sleep(EVERY_S)
        now = stamps(missing)
        missing -= {pgid for pgid, at in now.items() if at != before.get(pgid, at)}
    tell(scrubbed_after_s=time.monotonic() - began)


def wait_until_clean(cluster: Any, epoch: int) -> None:
    """Until the last group is."""
    missing = set(groups(cluster))
    while missing:
        missing -= clean_ones(cluster, missing, epoch)
        if missing:
            time.sleep(EVERY_S)


def change(cluster: Any, osd: int, way: str) -> Tuple[float, float]:
    """Take the OSD `out` or `in`; what the clock and the monotonic one said before."""
    before = time.time(), time.monotonic()
    mon(cluster, "osd " + way, ids=[str(osd)])
    return before


def tell_when_clean(cluster: Any, way: str, before: Tuple[float, float]) -> None:
    """Tell when it went, wait for all groups as they are to be from then on, and tell how long."""
    told, began = before
    tell(**{way + "_at": told})
    wait_until_clean(cluster, mon(cluster, "osd dump")["epoch"])
    tell(**{"clean_after_" + way + "_s": time.monotonic() - began})


def main(asked: Dict[str, Any]) -> None:
    """`conf`, `osd`, `kind` of disturbance and `after_s`: seconds until it begins."""
    import rados  # noqa: PLC0415 - there where `ceph` is, and nowhere else

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    cluster = rados.Rados(conffile=asked["conf"], name="client.admin")
    cluster.connect(timeout=30)
    time.sleep(asked["after_s"])
    if asked.get("kind", "recovery") != "recovery":
        flags = [flag for flag in ("noscrub", "nodeep-scrub")
                 if flag in mon(cluster, "osd dump").get("flags", "").split(",")]  # fmt: skip
        print(json.dumps({"unset": " ".join(flags)}), flush=True)
        try:
            for flag in flags:
                mon(cluster, "osd unset", key=flag)
            scrub(cluster, asked["kind"])
        finally:
            for flag in flags:
                mon(cluster, "osd set", key=flag)
        return
    try:
        tell_when_clean(cluster, "out", change(cluster, asked["osd"], "out"))
    finally:
        before = change(cluster, asked["osd"], "in")
    tell_when_clean(cluster, "in", before)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
