"""Takes an OSD out, waits until all is clean, and takes it in again. This file runs on the head.

It needs Python 3.6 and Ceph's rados module. Whatever ends it but SIGKILL, the OSD is in again.
"""

import json
import signal
import sys
import time
from typing import Any, Dict, List, Set

#: Up to so many placement groups are asked one by one; the manager's list is 5 s old.
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
        known = {pg["pgid"]: (pg["state"], int(pg["reported_epoch"])) for pg in stats}
    else:
        known = {pgid: queried(cluster, pgid) for pgid in pgs}
    return {
        pgid
        for pgid in pgs
        if known.get(pgid, ("", 0))[0].startswith("active+clean") and known[pgid][1] >= epoch
    }


def queried(cluster: Any, pgid: str) -> Any:
    """The state of a group and the epoch it knows, by its own word."""
    ask = json.dumps({"prefix": "query", "pgid": pgid, "format": "json"})
    status, out, _ = cluster.pg_command(pgid, ask, b"")
    about = json.loads(out) if status == 0 and out else {}
    return about.get("state", ""), int(about.get("epoch", 0))


def wait_until_clean(cluster: Any, epoch: int) -> float:
    """When the last group was."""
    missing = set(groups(cluster))
    while missing:
        missing -= clean_ones(cluster, missing, epoch)
        if missing:
            time.sleep(EVERY_S)
    return time.time()


def changed(cluster: Any, prefix: str, osd: int) -> float:
    """Take the OSD out or in; the time before."""
    began = time.time()
    mon(cluster, prefix, ids=[str(osd)])
    return began


def main(asked: Dict[str, Any]) -> None:
    """`conf`, `osd` and `after_s`: seconds until it goes out."""
    import rados  # noqa: PLC0415 - there where `ceph` is, and nowhere else

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    cluster = rados.Rados(conffile=asked["conf"], name="client.admin")
    cluster.connect(timeout=30)
    time.sleep(asked["after_s"])
    try:
        out_at = changed(cluster, "osd out", asked["osd"])
        tell(out_at=out_at)
        epoch = mon(cluster, "osd dump")["epoch"]
        tell(clean_after_out_s=wait_until_clean(cluster, epoch) - out_at)
    finally:
        in_at = changed(cluster, "osd in", asked["osd"])
    tell(in_at=in_at)
    epoch = mon(cluster, "osd dump")["epoch"]
    tell(clean_after_in_s=wait_until_clean(cluster, epoch) - in_at)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
