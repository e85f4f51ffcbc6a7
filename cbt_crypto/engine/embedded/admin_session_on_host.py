"""Take steps on a cluster, with one connection to its monitors. Runs on hosts: Python 3.6, rados.

Prints a JSON line for each step of its third argument, and waits for more in files of its fourth.
"""

import concurrent.futures
import json
import os
import select
import signal
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

Step = Dict[str, Any]

#: Up to this number, placement groups are asked for one by one: the manager's summary is 5 s old.
_DIRECT = 512


class Session:
    """A connection, and until when the steps of now may take."""

    def __init__(self, conf: str, limit: int) -> None:
        self.conf = conf
        self.allow(limit)
        self.cluster = None  # type: Any
        # Where a pool's groups are follows from the OSD map: (pool, epoch of the map) -> OSDs.
        self.known_places = {}  # type: Dict[Tuple[int, Any], List[int]]

    def allow(self, limit: int) -> None:
        """Let all that follows take at most `limit` seconds together."""
        self.limit = limit
        self.deadline = time.monotonic() + limit

    def connect(self) -> None:
        """Ask the monitors for a session."""
        import rados  # noqa: PLC0415 - only what the first line of `ceph` names has it

        self.cluster = rados.Rados(conffile=self.conf, name="client.admin")
        try:
            self.cluster.connect(timeout=max(1, int(self.deadline - time.monotonic())))
        except rados.Error as error:
            sys.exit(f"no monitor answers: {error}")

    def take_all(self, steps: List[Step]) -> Iterator[str]:
        """The answer to each step, a line of JSON."""
        known = {
            "wait": self.wait, "placed": self.placed, "alike": self.place_alike,
            "mon": self.command, "end": lambda step: "",
        }  # type: Dict[str, Callable[[Step], str]]  # fmt: skip
        for step in steps:
            take = next(known[kind] for kind in known if kind in step)
            yield json.dumps(take(step)) + "\n"

    def command(self, step: Step) -> str:
        """A monitor command."""
        status, out, text = self.cluster.mon_command(json.dumps(step["mon"]), b"")
        if status:
            sys.exit("ceph {}: {}".format(step["mon"]["prefix"], text or f"error {status}"))
        return str(out.decode() or text)

    def query(self, prefix: str) -> Dict[str, Any]:
        """What a monitor command prints; empty where it fails."""
        ask = json.dumps({"prefix": prefix, "format": "json"})
        status, out, _ = self.cluster.mon_command(ask, b"")
        return dict(json.loads(out)) if status == 0 and out else {}

    def wait(self, step: Step) -> str:
        """Until nothing is missing, or the time is over."""
        kinds = {"osds": self.osds_missing, "pgs": self.pgs_missing, "mgr": self.mgr_missing}
        missing = kinds[step["wait"]]
        while True:
            reason = missing(step)
            if reason is None:
                return str(step.get("clean_at") or "")
            if time.monotonic() > self.deadline:
                sys.exit(f"after {self.limit} s still: {reason}")
            time.sleep(0.1)

    def osds_missing(self, step: Step) -> Optional[str]:
        """Why not all OSDs are up."""
        osds = self.query("osd dump").get("osds", [])
        up = [osd for osd in osds if osd["up"] and osd["in"] and osd["up_from"] > step["since"]]
        count = step["count"]
        return None if len(up) >= count else f"{len(up)} of {count} OSDs are up"

    def mgr_missing(self, step: Step) -> Optional[str]:
        """Why there is no manager."""
        return None if self.query("mgr stat").get("available") else "no manager is active"

    def pgs_missing(self, step: Step) -> Optional[str]:
        """Why not all placement groups are clean."""
        dump = self.query("osd dump")
        if step.get("clean_at") and step["clean_at"] == dump.get("epoch"):
            return None
        step["clean_at"] = None
        pools = [pool for pool in dump.get("pools", []) if pool["pool_name"] in step["pools"]]
        count = sum(pool["pg_num"] for pool in pools)
        if count > _DIRECT:
            return self.summary_missing(count)
        # A kept session may know addresses that OSDs had before a restart, and ask there in vain.
        self.cluster.wait_for_latest_osdmap()
        for pool in pools:
            for number in range(pool["pg_num"]):
                pgid = "{}.{:x}".format(pool["pool"], number)
                state = self.pg_state(pgid)
                if not state.startswith("active+clean"):
                    return f"placement group {pgid} is {state}"
        # Of before they were asked: a map that came meanwhile is another one.
        step["clean_at"] = dump.get("epoch")
        return None

    def pg_state(self, pgid: str) -> str:
        """What a placement group says of itself."""
        ask = json.dumps({"prefix": "query", "pgid": pgid, "format": "json"})
        status, out, text = self.cluster.pg_command(pgid, ask, b"")
        return str(json.loads(out)["state"] if status == 0 and out else text or "unknown")

    def summary_missing(self, count: int) -> Optional[str]:
        """Say why not all of at least `count` placement groups are clean; None if they are."""
        stat = self.query("pg stat")
        stat = stat.get("pg_summary", stat)
        states = {state["name"]: state["num"] for state in stat.get("num_pg_by_state", [])}
        if stat.get("num_pgs", 0) < count:
            return "{} of {} placement groups are known".format(stat.get("num_pgs", 0), count)
        bad = sorted(name for name in states if not name.startswith("active+clean"))
        return "placement groups are {}".format(", ".join(bad)) if bad else None

    def mapped(self, pool: int, number: int) -> Dict[str, Any]:
        """Where a placement group is."""
        ask = {"prefix": "pg map", "pgid": f"{pool}.{number:x}", "format": "json"}
        return dict(json.loads(self.command({"mon": ask})))

    def placed(self, step: Step) -> str:
        """Ask the monitors: the manager is seconds behind, and has a new pool's groups nowhere."""
        dump = self.query("osd dump")
        pool, count = numbered(dump, step["placed"])
        key = pool, dump.get("epoch")
        if key not in self.known_places:
            maps = all_at_once(lambda number: self.mapped(pool, number), count)
            osds = sorted({osd for pg in maps for osd in pg["up"] + pg["acting"]})
            # A temporary placement is in the map too, so one map has one answer.
            if self.query("osd dump").get("epoch") != key[1]:
                return json.dumps(osds)
            self.known_places[key] = osds
        return json.dumps(self.known_places[key])

    def place_alike(self, step: Step) -> str:
        """Put one pool's groups where another's are, on twins."""
        dump = self.query("osd dump")
        (own, count), (other, _) = numbered(dump, step["alike"]), numbered(dump, step["like"])

        def place(number: int) -> None:
            up = self.mapped(other, number)["up"]
            twins = [step["twins"].get(str(osd)) for osd in up]
            if twins and None not in twins:
                pg = {"prefix": "osd pg-upmap", "pgid": f"{own}.{number:x}", "id": twins}
                self.command({"mon": pg})

        all_at_once(place, count)
        return ""


def all_at_once(do: Callable[[int], Any], count: int) -> List[Any]:
    """The monitors take many changes in one round, and each waits for its own."""
    with concurrent.futures.ThreadPoolExecutor(32) as several:
        return list(several.map(do, range(count)))


def numbered(dump: Dict[str, Any], name: str) -> Tuple[int, int]:
    """A pool's number, and how many groups it has."""
    (pool,) = [pool for pool in dump["pools"] if pool["pool_name"] == name]
    return pool["pool"], pool["pg_num"]


def is_last(steps: List[Step]) -> bool:
    """Whether the session ends behind these."""
    return any("end" in step for step in steps)


def first_answers(session: Session, steps: List[Step], base: str) -> None:
    """librados does not outlive a fork: a child connects, and this process shows its answers."""
    reads, writes = os.pipe()
    if os.fork() == 0:
        os.close(reads)
        os.setsid()
        serve(session, steps, base, writes)
    os.close(writes)
    with os.fdopen(reads) as answers:
        *lines, last = answers.read().splitlines(True) or [json.dumps({"failed": "it ended"})]
    sys.stdout.write("".join(lines))
    failed = json.loads(last)["failed"] if last.startswith("{") else "it ended"
    if failed is not None:
        sys.exit(failed)


def serve(session: Session, steps: List[Step], base: str, first: int) -> None:
    """Answer the first steps there, then those of `base`.steps, until the session ends."""
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
        session.connect()
        for line in session.take_all(steps):
            os.write(first, line.encode())
    except SystemExit as error:
        failed = str(error)
    except BaseException as error:
        failed = f"{type(error).__name__}: {error}"
    finally:
        os.write(first, json.dumps({"failed": failed}).encode())
        os.close(first)
    done = is_last(steps)
    while failed is None and not done and os.path.exists(base + ".ask"):
        if not select.select([asked], [], [], 5)[0]:
            continue
        os.read(asked, 4096)
        failed, done = answer(session, base)
        os.write(told, b"0\n" if failed is None else b"1\n")
    os._exit(0)


def answer(session: Session, base: str) -> Tuple[Optional[str], bool]:
    """Take the steps that wait now; return why they failed, and whether they are the last."""
    failed = None
    with open(base + ".steps") as file:
        request = json.load(file)
    session.allow(request["timeout"])
    # librados may wait for ever. Whoever asked gives up too, and the next one begins anew.
    signal.alarm(request["timeout"] + 10)
    with open(base + ".out", "w") as out, open(base + ".err", "w") as err:
        try:
            out.writelines(session.take_all(request["steps"]))
        except SystemExit as error:
            failed = str(error)
            err.write(failed + "\n")
    signal.alarm(0)
    return failed, is_last(request["steps"])


def main(conf: str, limit: str, steps: str, base: str) -> None:
    """With conf, seconds, steps as JSON, and how the names of a kept session's files begin."""
    session = Session(conf, int(limit))
    if base:
        first_answers(session, json.loads(steps), base)
        return
    session.connect()
    for line in session.take_all(json.loads(steps)):
        sys.stdout.write(line)
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:5])
