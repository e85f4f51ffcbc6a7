"""Many monitor commands in one process: the start of a `ceph` command costs 0.5 to 1 s.

The program below runs on the head, with the Python that `ceph` itself uses: that one has librados.
It reads a list of steps as JSON from its argument and prints one JSON line for each. Then it waits
for more steps, so that a deployment has one session with the monitors and not one for each wait.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

Step = dict[str, Any]

_PROGRAM = r"""
import concurrent.futures, json, os, select, signal, sys, time

# Up to this number, placement groups are asked for one by one: the manager's summary is 5 s old.
DIRECT = 512

conf, limit, steps, base = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
deadline = time.monotonic() + float(limit)
# Where a pool's groups are follows from the OSD map: (pool, epoch of the map) -> OSDs.
known_places = {}


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
    # A kept session may know addresses that OSDs had before a restart, and ask there in vain.
    cluster.wait_for_latest_osdmap()
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
    dump = query(cluster, "osd dump")
    pool, count = numbered(dump, step["placed"])
    key = pool, dump.get("epoch")
    if key not in known_places:
        maps = all_at_once(lambda number: mapped(cluster, pool, number), range(count))
        osds = sorted({osd for pg in maps for osd in pg["up"] + pg["acting"]})
        # A temporary placement is in the map too, so one map has one answer.
        if query(cluster, "osd dump").get("epoch") != key[1]:
            return json.dumps(osds)
        known_places[key] = osds
    return json.dumps(known_places[key])


def numbered(dump, name):
    (pool,) = [pool for pool in dump["pools"] if pool["pool_name"] == name]
    return pool["pool"], pool["pg_num"]


def place_alike(cluster, step):
    dump = query(cluster, "osd dump")
    (own, count), (other, _) = numbered(dump, step["alike"]), numbered(dump, step["like"])

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
            fail("after %s s still: %s" % (limit, reason))
        time.sleep(0.1)


def connected():
    import rados

    cluster = rados.Rados(conffile=conf, name="client.admin")
    try:
        cluster.connect(timeout=max(1, int(deadline - time.monotonic())))
    except rados.Error as error:
        fail("no monitor answers: %s" % error)
    return cluster


def take_all(cluster, steps):
    known = {"wait": wait, "placed": placed, "alike": place_alike, "mon": command, "end": end}
    for step in steps:
        take = next(known[kind] for kind in known if kind in step)
        yield json.dumps(take(cluster, step)) + "\n"


def end(cluster, step):
    return ""


def is_last(steps):
    return any("end" in step for step in steps)


def first_answers():
    # librados does not outlive a fork: the child connects, and this process shows its answers.
    reads, writes = os.pipe()
    if os.fork() == 0:
        os.close(reads)
        os.setsid()
        serve(writes)
    os.close(writes)
    with os.fdopen(reads) as answers:
        *lines, last = answers.read().splitlines(True) or [json.dumps({"failed": "it ended"})]
    sys.stdout.write("".join(lines))
    failed = json.loads(last)["failed"] if last.startswith("{") else "it ended"
    if failed is not None:
        fail(failed)


def serve(first):
    global deadline, limit
    failed = None
    try:
        for name in (".ask", ".told"):
            if os.path.exists(base + name):
                os.remove(base + name)
            os.mkfifo(base + name, 0o600)
        asked, told = (os.open(base + name, os.O_RDWR) for name in (".ask", ".told"))
        with open(os.devnull) as nothing, open(base + ".said", "w") as said:
            os.dup2(nothing.fileno(), 0)
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        cluster = connected()
        for line in take_all(cluster, steps):
            os.write(first, line.encode())
    except SystemExit as error:
        failed = str(error)
    except BaseException as error:
        failed = "%s: %s" % (type(error).__name__, error)
    finally:
        os.write(first, json.dumps({"failed": failed}).encode())
        os.close(first)
    done = is_last(steps)
    while failed is None and not done and os.path.exists(base + ".ask"):
        if not select.select([asked], [], [], 5)[0]:
            continue
        os.read(asked, 4096)
        with open(base + ".steps") as file:
            request = json.load(file)
        limit = request["timeout"]
        deadline = time.monotonic() + limit
        # librados may wait for ever. Whoever asked gives up too, and the next one begins anew.
        signal.alarm(limit + 10)
        with open(base + ".out", "w") as out, open(base + ".err", "w") as err:
            try:
                out.writelines(take_all(cluster, request["steps"]))
            except SystemExit as error:
                failed = str(error)
                err.write(failed + "\n")
        signal.alarm(0)
        done = is_last(request["steps"])
        os.write(told, b"0\n" if failed is None else b"1\n")
    os._exit(0)


if base:
    first_answers()
else:
    for line in take_all(connected(), steps):
        sys.stdout.write(line)
        sys.stdout.flush()
"""

# A session that has ended has closed its end of the pipe, so nothing here waits for it. The pipe
# is opened both ways at first, as that waits for nobody.
_ASK = """
umask 077
told=
if [ -p "$session.told" ]; then
    printf %s "$request" > "$session.steps"
    { exec 8< "$session.told"; } 9<> "$session.told"
    echo 1<> "$session.ask"
    read -r told <&8 || told=
    exec 8<&-
fi
if [ -n "$told" ]; then
    cat "$session.out"
    cat "$session.err" >&2
    exit "$told"
fi
"""


def script(ceph_cmd: str, conf: str, steps: Sequence[Step], timeout: int, session: str = "") -> str:
    """Shell text for the head that takes `steps`, within `timeout` seconds in all.

    `session` is how the names of files begin by which a session is found again that an earlier
    such script began. It ends where it fails, and when its files are removed.

    A step is `{"mon": {"prefix": ..., ...}}`, a monitor command; or `{"wait": "osds", "count": n,
    "since": epoch}`, until n OSDs are up that came up after that epoch of the OSD map;
    `{"wait": "mgr"}`, until a manager is active; or `{"wait": "pgs", "pools": [...], "clean_at":
    epoch}`, until every placement group of those pools is active+clean. It prints the epoch of the
    OSD map of which each group itself said so. With that as `clean_at` they are not asked again
    while the map is the same, as a group peers and backfills for a new map only.
    `{"placed": name}` answers with a JSON list of the OSDs that a pool's placement groups are on,
    by `ceph pg map`. `{"alike": name, "like": name, "twins": {...}}` puts those of the one
    where those of the other are, on twins. `{"end": true}` ends a `session` behind these steps.
    """
    words = json.dumps(list(steps))
    ask = ""
    if session:
        request = json.dumps({"timeout": timeout, "steps": steps})
        ask = f"session={shlex.quote(session)} request={shlex.quote(request)}{_ASK}"
    return (
        f"{ask}ceph=$(command -v {shlex.quote(ceph_cmd)}) || {{ echo 'ceph is missing; install "
        "ceph-common' >&2; exit 1; }\n"
        # The first line of `ceph` names the interpreter whose packages it was installed with.
        "python=$(sed -n '1s/^#! *//p' \"$ceph\")\n"
        f"${{python:-python3}} - {shlex.quote(conf)} {timeout} {shlex.quote(words)} "
        f"{shlex.quote(session)} <<'PROGRAM'\n{_PROGRAM}PROGRAM"
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
