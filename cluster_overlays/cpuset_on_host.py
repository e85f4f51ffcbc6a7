"""Choose CPUs for OSDs and clients, and put processes there. Runs on hosts: Python 3.6 alone.

A core is the list of its hyperthreads. Ceph pins OSDs to NUMA nodes by `osd_numa_node`, or itself.
"""

import contextlib
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple, Union

from cbt_crypto.hosts.admin_socket_on_host import ASK_ERRORS, ask
from cbt_crypto.hosts.devices.layers_on_host import bottoms, numa_of, opened

Core = List[int]
#: Seconds an OSD may take to tell an option.
_TIMEOUT_S = 10


class Impossible(Exception):
    """One sentence on why this host cannot do what is asked."""


class HostFiles:
    """What is read and written below `root`: /, or a copy of its files in a test."""

    def __init__(
        self,
        root: str = "/",
        set_affinity: Callable[[int, Iterable[int]], None] = os.sched_setaffinity,
    ) -> None:
        self.root, self.set_affinity = Path(root), set_affinity

    def read(self, path: str) -> str:
        """The text of a file below the root, stripped."""
        return (self.root / path).read_text(errors="replace").strip()

    def own(self, group: str) -> str:
        """The group's name on this host and no other node that shares its kernel."""
        namespace = self.root / "proc/self/ns/net"
        return f"{group}.{namespace.stat().st_ino}" if namespace.exists() else group

    def usable_cpus(self) -> List[int]:
        """What init may use: all CPUs that are online, but for those isolated or fenced off."""
        return self._allowed(_fields(self.read("proc/1/status")))

    def _allowed(self, status: Dict[str, str]) -> List[int]:
        # The kernel's list may name CPUs that are not there, or not any more.
        online = parse_cpus(self.read("sys/devices/system/cpu/online"))
        return sorted(set(online) & set(parse_cpus(status["Cpus_allowed_list"])))

    def nodes(self) -> Dict[int, List[Core]]:
        """NUMA node -> its cores, in the order of their first thread."""
        usable = self.usable_cpus()
        nodes: Dict[int, List[Core]] = {}
        seen: List[int] = []
        for cpu in usable:
            if cpu in seen:
                continue
            folder = f"sys/devices/system/cpu/cpu{cpu}"
            siblings = parse_cpus(self.read(folder + "/topology/thread_siblings_list"))
            core = [thread for thread in siblings if thread in usable]
            seen += core
            links = sorted((self.root / folder).glob("node[0-9]*"))
            nodes.setdefault(int(links[0].name[4:]) if links else 0, []).append(core)
        return nodes

    def node_of(self, cpus: str) -> Optional[int]:
        """The NUMA node whose usable CPUs are exactly these; None where there is none."""
        for node, cores in self.nodes().items():
            if format_cpus(cpu for core in cores for cpu in core) == cpus:
                return node
        return None

    def drives(self, pid: str) -> Dict[str, int]:
        """Drive -> its NUMA node, of all that the block devices are made of that a process has."""
        places = [os.path.realpath(str(self.root / "sys/dev/block" / n)) for n in opened(pid)]
        names = {name for place in places for name in bottoms(place)}
        nodes = {name: numa_of(self.root / "sys/class/block" / name) for name in names}
        return {name: node for name, node in nodes.items() if node is not None}

    def pin(self, pid: str, cpus: List[int]) -> None:
        """Let all threads of a process use just these CPUs, within those of its cgroup."""
        done: Set[str] = set()
        while True:
            # A thread has the CPUs of the one that started it, maybe just before its turn here.
            new = set(os.listdir(str(self.root / "proc" / pid / "task"))) - done
            if not new:
                return
            for thread in new:
                with contextlib.suppress(ProcessLookupError):
                    self.set_affinity(int(thread), cpus)
            done |= new

    def threads(self, pid_file: str) -> Dict[str, int]:
        """CPU list -> how many threads of the process may use just these; empty: not running."""
        try:
            pid = (self.root / pid_file.lstrip("/")).read_text().strip()
        except FileNotFoundError:
            return {}
        counts = Counter()  # type: Counter[str]
        for path in (self.root / "proc" / pid / "task").glob("*/status"):
            try:
                status = _fields(path.read_text(errors="replace"))
            except (FileNotFoundError, ProcessLookupError):
                continue  # a thread that has just ended
            if not status["State"].startswith("Z"):
                counts[format_cpus(self._allowed(status))] += 1
        return dict(counts)


def _fields(status: str) -> Dict[str, str]:
    pairs = (line.partition(":") for line in status.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def parse_cpus(text: str) -> List[int]:
    """[0, 1, 2, 5] of "0-2,5"."""
    cpus = []  # type: List[int]
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cpus += range(int(first), int(last or first) + 1)
    return cpus


def format_cpus(cpus: Iterable[int]) -> str:
    """ "0-2,5" of [0, 1, 2, 5], as the kernel writes it."""
    runs = []  # type: List[List[int]]
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _cores(count: int) -> str:
    return "1 whole core" if count == 1 else f"{count} whole cores"


class Chooser:
    """Hands out the cores of a host, each once."""

    def __init__(self, nodes: Dict[int, List[Core]]) -> None:
        self.free = {node: list(cores) for node, cores in nodes.items()}
        self.total = sum(len(cores) for cores in nodes.values())

    def from_node(self, count: int, nodes: List[int]) -> List[Core]:
        """Cores of the first of these nodes that has enough left."""
        where = f"NUMA node {nodes[0]}" if len(nodes) == 1 else "one NUMA node"
        for node in nodes:
            if len(self.free.get(node, ())) >= count:
                taken, self.free[node] = self.free[node][:count], self.free[node][count:]
                return taken
        left = sorted(self.free.items())
        free = ", ".join(f"{len(cores)} in node {node}" for node, cores in left)
        raise Impossible(
            f"osd_cores asks for {_cores(count)} of {where}, and free are {free}; lower it, or "
            "name another numa"
        )

    def in_turn(self, count: int) -> List[Core]:
        """Cores taken from the nodes in turn."""
        if count > sum(len(cores) for cores in self.free.values()):
            raise Impossible(
                f"osd_cores asks for {_cores(count)}, and this host has {self.total}; lower it"
            )
        taken = []  # type: List[Core]
        while len(taken) < count:
            for node in sorted(self.free):
                if self.free[node] and len(taken) < count:
                    taken.append(self.free[node].pop(0))
        return taken

    def rest(self) -> List[Core]:
        """All that are left, node by node."""
        return [core for node in sorted(self.free) for core in self.free[node]]


def choose(
    nodes: Dict[int, List[Core]], options: Dict[str, Any], osds: List[str]
) -> Tuple[Dict[str, List[int]], Optional[List[int]]]:
    """The CPUs of each OSD, and those of client processes; None where they are left alone."""
    chooser = Chooser(nodes)
    cores = _osd_cores(chooser, options, osds) if options["osd_cores"] and osds else {}
    return (
        {osd: threads(of_osd, options["smt"]) for osd, of_osd in cores.items()},
        _client_cpus(Chooser(nodes) if options["clients"] == "all" else chooser, options),
    )


def _osd_cores(chooser: Chooser, options: Dict[str, Any], osds: List[str]) -> Dict[str, List[Core]]:
    count, numa = options["osd_cores"], options["numa"]
    order = sorted(chooser.free)
    if not options["per_osd"]:
        if numa == "spread":
            return dict.fromkeys(osds, chooser.in_turn(count))
        return dict.fromkeys(osds, chooser.from_node(count, _nodes(numa, order)))
    chosen = {}
    for index, osd in enumerate(osds):
        turn = index % len(order)
        among = order[turn:] + order[:turn] if numa == "spread" else _nodes(numa, order)
        chosen[osd] = chooser.from_node(count, among)
    return chosen


def _nodes(numa: Union[str, int], order: List[int]) -> List[int]:
    return order if isinstance(numa, str) else [numa]


def _client_cpus(chooser: Chooser, options: Dict[str, Any]) -> Optional[List[int]]:
    if options["clients"] == "all" and not options["client_cores"]:
        return None
    cores = chooser.rest()
    count = options["client_cores"] or len(cores)
    if not cores or count > len(cores):
        raise Impossible(
            f"client processes are to have {_cores(max(count, 1))}, and the OSDs leave "
            f"{len(cores)} of {chooser.total}; lower osd_cores or client_cores"
        )
    return threads(cores[:count], options["smt"])


def threads(cores: List[Core], smt: bool) -> List[int]:
    """The CPUs of whole cores; without `smt` the first hyperthread of each."""
    return sorted(cpu for core in cores for cpu in (core if smt else core[:1]))


class Groups:
    """The cgroups of one campaign on this host: `name`, and in it one for each OSD and `clients`.

    systemd takes the controller from the root's children, but not from one whose children use it.
    """

    def __init__(self, base: Path, name: str) -> None:
        """`base` is the root of the hierarchy that has the cpuset controller, v2 or v1."""
        self.base = base
        self.unified = (base / "cgroup.controllers").exists()
        self.ours = base / name

    @classmethod
    def find(cls, host: HostFiles, name: str) -> Optional["Groups"]:
        """In cgroup v2, else in v1; None on a host without the controller."""
        mounted = host.root / "sys/fs/cgroup"
        for base in (mounted, mounted / "unified"):
            controllers = base / "cgroup.controllers"
            if controllers.exists() and "cpuset" in controllers.read_text(errors="replace").split():
                return cls(base, name)
        legacy = mounted / "cpuset"
        return cls(legacy, name) if (legacy / "cpuset.cpus").exists() else None

    def make(self) -> None:
        """Make the group that the others are in."""
        self.ours.mkdir(exist_ok=True)
        if self.unified:
            for group in (self.base, self.ours):
                (group / "cgroup.subtree_control").write_text("+cpuset")
        else:
            self._inherit(self.ours, "cpuset.cpus")
            self._inherit(self.ours, "cpuset.mems")

    def _inherit(self, group: Path, name: str) -> None:
        # v1 only: a new group has neither CPUs nor memory, and takes no process until it has both.
        (group / name).write_text((group.parent / name).read_text(errors="replace").strip())

    def confine(self, member: str, cpus: Iterable[int]) -> Path:
        """Make the member's group, with these CPUs."""
        group = self.ours / member
        group.mkdir(exist_ok=True)
        if not self.unified:
            self._inherit(group, "cpuset.mems")
        (group / "cpuset.cpus").write_text(format_cpus(cpus))
        return group

    def release(self, member: str) -> None:
        """Give the member's group, if there is one, all CPUs again."""
        group = self.ours / member
        if not group.exists():
            return
        # v2 would take them all again by an empty list, but not while processes are in the group.
        in_force = self._in_force(self.ours).read_text(errors="replace").strip()
        (group / "cpuset.cpus").write_text(in_force)

    def has(self, member: str, pid: str) -> bool:
        """Whether a process is in the member's group."""
        processes = self.ours / member / "cgroup.procs"
        return processes.exists() and pid in processes.read_text(errors="replace").split()

    def cpus(self, member: str) -> Optional[str]:
        """The CPUs in force for the member's group; None when it is not there."""
        path = self._in_force(self.ours / member)
        return path.read_text(errors="replace").strip() if path.exists() else None

    def _in_force(self, group: Path) -> Path:
        return group / ("cpuset.cpus.effective" if self.unified else "cpuset.effective_cpus")


class CpuPlan:
    """What `arguments` ask of this host. See `main`."""

    def __init__(self, host: HostFiles, arguments: Dict[str, Any]) -> None:
        self.host, self.arguments = host, arguments
        self.osds = {}  # type: Dict[str, List[int]]
        self.clients = None  # type: Optional[List[int]]
        self._settings = {}  # type: Dict[str, Tuple[int, bool]]
        options = arguments["options"]
        if options:
            self.osds, clients = choose(host.nodes(), options, list(arguments["osds"]))
            self.clients = clients if arguments["client"] else None

    def groups(self) -> Groups:
        """Where to confine processes."""
        groups = Groups.find(self.host, self.host.own(self.arguments["group"]))
        if not groups:
            raise Impossible(
                "no cgroup has the cpuset controller, neither v2 nor v1; leave cpuset out, or name "
                "a host that has it"
            )
        if not os.access(str(groups.base), os.W_OK):
            raise Impossible(
                f"{groups.base} cannot be written to; use a root user, or give yours sudo"
            )
        return groups

    def confine(self) -> None:
        """Put everything where it belongs. Safe to repeat, and with other options."""
        groups = self.groups()
        groups.make()
        for osd, cpus in self.osds.items():
            pid = self.host.read(self._pid_file(osd).lstrip("/"))
            self._note_choice(groups, osd, pid)
            group = groups.confine(osd, cpus)
            (group / "cgroup.procs").write_text(pid)
            if self._choice(osd):
                # Else it would use only those of its cgroup's CPUs that are Ceph's choice too.
                self.host.pin(pid, cpus)
        if self.clients:
            groups.confine("clients", self.clients)

    def release(self) -> None:
        """Lift what earlier options confined and these do not."""
        groups = Groups.find(self.host, self.host.own(self.arguments["group"]))
        for osd in self.arguments["osds"]:
            if groups and osd not in self.osds:
                groups.release(osd)
                choice = self._choice(osd)
                if choice:
                    self.host.pin(choice[0], parse_cpus(choice[1]))

    def _pid_file(self, osd: str) -> str:
        return str(self.arguments["osds"][osd]["pid_file"])

    def _note(self, osd: str) -> Path:
        return self.host.root / (self._pid_file(osd).lstrip("/") + ".cpus")

    def _note_choice(self, groups: Groups, osd: str, pid: str) -> None:
        """Keep the CPUs that Ceph chose for an OSD, before we confine it for the first time."""
        threads = self.host.threads(self._pid_file(osd))
        if groups.has(osd, pid) or not threads:
            return
        cpus = _of_most(threads)
        if cpus != format_cpus(self.host.usable_cpus()):
            self._note(osd).write_text(f"{pid} {cpus}\n")

    def _choice(self, osd: str) -> Optional[List[str]]:
        """The OSD's pid and the CPUs that Ceph chose for it; None where it chose none."""
        try:
            choice = self._note(osd).read_text().split()
            pid = self.host.read(self._pid_file(osd).lstrip("/"))
        except FileNotFoundError:
            return None
        return choice if choice[0] == pid else None

    def facts(self, threads_of: Optional[Callable[[str], Dict[str, int]]] = None) -> Dict[str, Any]:
        """What is in force, beside what should be. `threads_of` reads them in another way."""
        read = threads_of or self.host.threads
        usable = format_cpus(self.host.usable_cpus())
        facts = {"usable": usable, "osds": {}}  # type: Dict[str, Any]
        for osd in self.arguments["osds"]:
            threads = read(self._pid_file(osd))
            about = {"expected": usable, "threads": threads}  # type: Dict[str, Any]
            if osd in self.osds:
                about["expected"] = format_cpus(self.osds[osd])
            elif threads and _of_most(threads) != usable:
                cpus = _of_most(threads)
                node = self._node_of_ceph(osd, cpus)
                if node is not None:
                    about.update(expected=cpus, numa_node=node)
            facts["osds"][osd] = about
        if self.clients:
            in_force = self.groups().cpus("clients")
            facts["clients"] = {"expected": format_cpus(self.clients), "in_force": in_force}
        return facts

    def remote_drives(self, osd: str, cpus: str) -> Dict[str, int]:
        """Drive of an OSD -> its NUMA node, where none of `cpus` is on that node."""
        allowed, nodes = set(parse_cpus(cpus)), self.host.nodes().items()
        own = {node for node, cores in nodes if any(allowed.intersection(core) for core in cores)}
        with contextlib.suppress(OSError):  # it has ended meanwhile
            drives = self.host.drives(self.host.read(self._pid_file(osd).lstrip("/")))
            return {drive: node for drive, node in drives.items() if node not in own}
        return {}

    def _node_of_ceph(self, osd: str, cpus: str) -> Optional[int]:
        """The NUMA node that Ceph keeps an OSD on, if it may and these are all of its CPUs."""
        groups = Groups.find(self.host, self.host.own(self.arguments["group"]))
        if groups and groups.cpus(osd) == cpus:
            return None  # it is our cgroup that confines it
        node = self.host.node_of(cpus)
        if node is None:
            return None
        try:
            named, is_automatic = self._numa_settings(osd)
        except (*ASK_ERRORS, KeyError, TypeError):
            return None
        return node if named == node or (named < 0 and is_automatic) else None

    def _numa_settings(self, osd: str) -> Tuple[int, bool]:
        """`osd_numa_node` and `osd_numa_auto_affinity` of a running OSD."""
        if osd not in self._settings:
            socket = self.arguments["osds"][osd]["socket"]
            named, automatic = (
                ask(socket, {"prefix": "config get", "var": name}, timeout_s=_TIMEOUT_S)[name]
                for name in ("osd_numa_node", "osd_numa_auto_affinity")
            )
            self._settings[osd] = int(named), automatic == "true"
        return self._settings[osd]


def _of_most(threads: Dict[str, int]) -> str:
    """The CPUs that most threads may use."""
    return max(sorted(threads), key=lambda cpus: threads[cpus])


_planned = []  # type: List[CpuPlan]


def see(arguments: Dict[str, Any]) -> Dict[str, Any]:
    """OSD -> CPUs `expected`, lists of its threads' `found`, Ceph's `numa_node`, and `clients`."""
    if not _planned:
        _planned.append(CpuPlan(HostFiles(), arguments))
    plan = _planned[0]
    facts = plan.facts(threads_of)
    for osd in facts["osds"].values():
        osd["found"] = sorted(osd.pop("threads"))
    return facts


def threads_of(pid_file: str) -> Dict[str, int]:
    """As `Host.threads`, by a system call for each thread, which costs less than its file."""
    counts = Counter()  # type: Counter[str]
    with contextlib.suppress(OSError, ValueError):
        pid = int(Path(pid_file).read_text())
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                counts[format_cpus(os.sched_getaffinity(int(thread)))] += 1
    return dict(counts)


def main(arguments: Dict[str, Any], host: HostFiles) -> None:
    """Do `arguments["action"]`: check, apply or show.

    Others: `group`, our cgroup; `options`, the overlay's or null; `osds`, name -> `pid_file` and
    `socket`; `client`, whether client processes run here.
    """
    plan = CpuPlan(host, arguments)
    if arguments["action"] == "check":
        plan.groups()
        print("ok")
    elif arguments["action"] == "apply":
        plan.release()
        if plan.osds or plan.clients:
            plan.confine()
    else:
        facts = plan.facts()
        for osd, about in facts["osds"].items():
            remote = plan.remote_drives(osd, about["expected"]) if about["threads"] else {}
            about.update({"remote_drives": remote} if remote else {})
        print(json.dumps(facts, sort_keys=True))


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    try:
        main(asked, HostFiles())
    except (Impossible, OSError) as problem:
        if asked["action"] != "check":
            sys.exit(str(problem))
        print(problem)
