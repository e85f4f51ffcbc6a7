"""Many monitor commands in one process: the start of a `ceph` command costs 0.5 to 1 s.

The program below runs on the head, with the Python that `ceph` itself uses: that one has librados.
It reads a list of steps as JSON from its argument and prints one JSON line for each.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

Step = dict[str, Any]

_PROGRAM = r"""
import concurrent.futures, json, sys, time
import rados

# Up to so many placement groups are asked for one by one: the manager's summary is 5 s old.
DIRECT = 512

conf, deadline, steps = sys.argv[1], time.monotonic() + float(sys.argv[2]), json.loads(sys.argv[3])


def fail(sentence):
    sys.exit(sentence)


def command(cluster, step):
    status, out, text = cluster.mon_command(json.dumps(step["mon"]), b"")
    if status:
        fail("ceph %s: %s" % (step["mon"]["prefix"], text or "error %d" % status))
    return out.decode() or text


def query(cluster, prefix):
    status, out, text = cluster.mon_command(json.dumps({"prefix": prefix, "format": "json"}), b"")
    return json.loads(out) if status == 0 and out else {}


def osds_missing(cluster, step):
    osds = query(cluster, "osd dump").get("osds", [])
    up = [osd for osd in osds if osd["up"] and osd["in"] and osd["up_from"] > step["since"]]
    return None if len(up) >= step["count"] else "%d of %d OSDs are up" % (len(up), step["count"])


def mgr_missing(cluster, step):
    return None if query(cluster, "mgr stat").get("available") else "no manager is active"


def pgs_missing(cluster, step):
    dump = query(cluster, "osd dump")
    if step.get("clean_at") and step["clean_at"] == dump.get("epoch"):
        return None
    step["clean_at"] = None
    pools = [pool for pool in dump.get("pools", []) if pool["pool_name"] in step["pools"]]
    count = sum(pool["pg_num"] for pool in pools)
    if count > DIRECT:
        return summary_missing(cluster, count)
    for pool in pools:
        for number in range(pool["pg_num"]):
            pgid = "%d.%x" % (pool["pool"], number)
            state = pg_state(cluster, pgid)
            if not state.startswith("active+clean"):
                return "placement group %s is %s" % (pgid, state)
    # Of before they were asked: a map that came meanwhile is another one.
    step["clean_at"] = dump.get("epoch")
    return None


def pg_state(cluster, pgid):
    ask = json.dumps({"prefix": "query", "pgid": pgid, "format": "json"})
    status, out, text = cluster.pg_command(pgid, ask, b"")
    return json.loads(out)["state"] if status == 0 and out else text or "unknown"


def summary_missing(cluster, count):
    stat = query(cluster, "pg stat")
    stat = stat.get("pg_summary", stat)
    states = {state["name"]: state["num"] for state in stat.get("num_pg_by_state", [])}
    if stat.get("num_pgs", 0) < count:
        return "%d of %d placement groups are known" % (stat.get("num_pgs", 0), count)
    bad = sorted(name for name in states if not name.startswith("active+clean"))
    return "placement groups are %s" % ", ".join(bad) if bad else None


def mapped(cluster, pool, number):
    ask = {"prefix": "pg map", "pgid": "%d.%x" % (pool, number), "format": "json"}
    return json.loads(command(cluster, {"mon": ask}))


def all_at_once(do, numbers):
    # The monitors take many changes in one round, and each waits for its own.
    with concurrent.futures.ThreadPoolExecutor(32) as several:
        return list(several.map(do, numbers))


def placed(cluster, step):
    # Of the monitors: the manager is seconds behind, and has the groups of a new pool nowhere.
    pool, count = numbered(cluster, step["placed"])
    maps = all_at_once(lambda number: mapped(cluster, pool, number), range(count))
    return json.dumps(sorted({osd for pg in maps for osd in pg["up"] + pg["acting"]}))


def numbered(cluster, name):
    (pool,) = [pool for pool in query(cluster, "osd dump")["pools"] if pool["pool_name"] == name]
    return pool["pool"], pool["pg_num"]


def place_alike(cluster, step):
    (own, count), (other, _) = numbered(cluster, step["alike"]), numbered(cluster, step["like"])

    def place(number):
        up = mapped(cluster, other, number)["up"]
        twins = [step["twins"].get(str(osd)) for osd in up]
        if twins and None not in twins:
            pg = {"prefix": "osd pg-upmap", "pgid": "%d.%x" % (own, number), "id": twins}
            command(cluster, {"mon": pg})

    all_at_once(place, range(count))
    return ""


def wait(cluster, step):
    missing = {"osds": osds_missing, "pgs": pgs_missing, "mgr": mgr_missing}[step["wait"]]
    while True:
        reason = missing(cluster, step)
        if reason is None:
            return str(step.get("clean_at") or "")
        if time.monotonic() > deadline:
            fail("after %s s still: %s" % (sys.argv[2], reason))
        time.sleep(0.1)


cluster = rados.Rados(conffile=conf, name="client.admin")
try:
    cluster.connect(timeout=max(1, int(deadline - time.monotonic())))
except rados.Error as error:
    fail("no monitor answers: %s" % error)
for step in steps:
    known = {"wait": wait, "placed": placed, "alike": place_alike, "mon": command}
    take = next(known[kind] for kind in known if kind in step)
    print(json.dumps(take(cluster, step)))
    sys.stdout.flush()
cluster.shutdown()
"""


def script(ceph_cmd: str, conf: str, steps: Sequence[Step], timeout: int) -> str:
    """Shell text for the head that takes `steps`, within `timeout` seconds in all.

    A step is `{"mon": {"prefix": ..., ...}}`, a monitor command; or `{"wait": "osds", "count": n,
    "since": epoch}`, until n OSDs are up that came up after that epoch of the OSD map;
    `{"wait": "mgr"}`, until a manager is active; or `{"wait": "pgs", "pools": [...], "clean_at":
    epoch}`, until every placement group of those pools is active+clean. It prints the epoch of the
    OSD map of which each group itself said so. With that as `clean_at` they are not asked again
    while the map is the same, as a group peers and backfills for a new map only.
    `{"placed": name}` answers with a JSON list of the OSDs that a pool's placement groups are on,
    by `ceph pg map`. `{"alike": name, "like": name, "twins": {...}}` puts those of the one
    where those of the other are, on twins.
    """
    return (
        f"ceph=$(command -v {shlex.quote(ceph_cmd)}) || {{ echo 'ceph is missing; install "
        "ceph-common' >&2; exit 1; }\n"
        # The first line of `ceph` names the interpreter whose packages it was installed with.
        "python=$(sed -n '1s/^#! *//p' \"$ceph\")\n"
        f"${{python:-python3}} - {shlex.quote(conf)} {timeout} "
        f"{shlex.quote(json.dumps(list(steps)))} <<'PROGRAM'\n{_PROGRAM}PROGRAM"
    )


def answers(output: str) -> list[str]:
    """What each step printed, from the script's output."""
    return [str(json.loads(line)) for line in output.splitlines() if line.startswith('"')]


def up_from(osd_dump: str) -> dict[int, int]:
    """OSD -> epoch since which it is up, of `osd dump`; without those that are down."""
    try:
        epochs = {
            entry["osd"]: entry["up_from"] for entry in json.loads(osd_dump)["osds"] if entry["up"]
        }
    except (ValueError, KeyError, TypeError):
        return {}
    return {int(osd): int(epoch) for osd, epoch in epochs.items()}
