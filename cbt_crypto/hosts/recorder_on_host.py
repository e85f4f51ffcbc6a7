"""Write down each second what explains a cell's figures. Runs on hosts: Python 3.6 alone.

Files: `recording` (JSON lines: a header, then counts since the last line), `clients_cpu`, `energy`.
"""

import contextlib
import glob
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from cbt_crypto.hosts.clients_on_host import Clients
from cbt_crypto.hosts.counter_sampler_on_host import speeds, to_next_beat
from cbt_crypto.hosts.trust_on_host import ceph_users, is_believed

#: A thread's class by its name, the first that matches; kernel workers have their work behind `-`.
#: Ceph's names are 15 characters at most: bstore_kv_final, rocksdb:low0 (compacts), :high0.
_CLASSES = (
    ("dmcrypt_write", re.compile(r"dmcrypt_write")),
    ("kcryptd", re.compile(r"kcryptd|kworker.*[-+]kcrypt")),
    ("kworker", re.compile(r"kworker")),
    ("tp_osd_tp", re.compile(r"tp_osd_tp")),
    ("msgr-worker", re.compile(r"msgr-worker")),
    ("bstore_kv_sync", re.compile(r"bstore_kv_sync")),
    ("bstore_kv_final", re.compile(r"bstore_kv_final")),
    ("rocksdb:low", re.compile(r"rocksdb:low")),
    ("rocksdb:high", re.compile(r"rocksdb:high")),
)
#: Processes whose threads are told apart; of any other process the whole is one "other".
_DAEMONS = ("ceph-osd", "ceph-mon", "ceph-mgr")
#: Threads read each second at most, at 10 us each; of more, each is read less often.
_THREADS_A_SECOND = 600
#: What is rarely of interest is read each fifth time while it does nothing.
_SELDOM = 5
_KERNEL_THREAD = 0x00200000
#: Whether the kernel counts how long a thread waited for a CPU.
_HAS_DELAYS = os.path.exists("/proc/self/schedstat")


def read(path: str) -> str:
    """A file of the kernel; a name of a process may hold any byte."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


class Task:
    """A thread, or a process as a whole, whose file stays open: a pread costs half of an open."""

    def __init__(self, path: str, kind: str, is_eager: bool, from_start: bool) -> None:
        """`kind` is its class, or empty where its name decides; OSError if it is gone."""
        self.fd = os.open(path, os.O_RDONLY)
        self.path = path
        self.kind = kind
        self.is_eager = is_eager
        self.name = ""
        self.user = self.sys = self.looked = self.delay_us = 0
        self.is_quiet = False
        if not from_start:
            self.moved()
            self.waited_us()

    def moved(self) -> Tuple[int, int]:
        """Ticks in user and system mode since the last time. OSError if it has ended."""
        data = os.pread(self.fd, 1024, 0)
        end = data.rfind(b")")
        fields = data[end + 2 :].split(None, 13)  # proc(5)'s field 3 and on
        self.name = data[data.find(b"(") + 1 : end].decode("utf-8", "replace")
        user, system = int(fields[11]), int(fields[12])
        moved = user - self.user, system - self.sys
        self.user, self.sys = user, system
        return moved

    def waited_us(self) -> int:
        """Microseconds in which it could run and had no CPU, since the last time."""
        if not self.is_eager or not _HAS_DELAYS:
            return 0
        before, self.delay_us = self.delay_us, int(read(f"{self.path[:-4]}schedstat").split()[1])
        self.delay_us //= 1000
        return self.delay_us - before

    def close(self) -> None:
        """Let go of its file."""
        os.close(self.fd)


def class_of(name: str, default: str) -> str:
    """The class of a thread with this name."""
    return next((kind for kind, pattern in _CLASSES if pattern.match(name)), default)


class Tasks:
    """Every thread that may be of interest."""

    def __init__(self) -> None:
        self.tasks = {}  # type: Dict[str, Task]
        self.whole = {}  # type: Dict[str, Set[str]]
        self.looks = 0
        self.every = 1

    def scan(self, pids: Set[str], clients: Set[str]) -> None:
        """Open what began since the last time."""
        for pid in clients:
            if pid not in self.whole:
                self.drop(pid)  # It was a script until now, or sudo.
                self.whole[pid] = set()
        for pid in pids:
            if pid not in self.tasks and pid not in self.whole:
                self.open(pid)
        for pid, threads in list(self.whole.items()):
            if pid not in pids:
                del self.whole[pid]
                continue
            self.open_threads(pid, threads, "client" if pid in clients else "")

    def open(self, pid: str) -> None:
        """A process that is new: as a whole, or to be opened thread by thread."""
        try:
            stat = read(f"/proc/{pid}/stat")
            name = stat.partition("(")[2].rpartition(")")[0]
            # Anybody may call his processes, and their threads, what he likes.
            if name in _DAEMONS and is_believed(pid, ceph_users()):
                self.whole[pid] = set()
                return
            is_kernel = int(stat.rpartition(")")[2].split()[6]) & _KERNEL_THREAD
            kind = "" if is_kernel else "other"
            # What all others used is known without them: they take no other thread's place.
            if kind and len(self.tasks) > resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2:
                return
            self.tasks[pid] = Task(f"/proc/{pid}/stat", kind, False, self.looks > 0)
        except (OSError, ValueError, IndexError):
            return

    def open_threads(self, pid: str, threads: Set[str], kind: str) -> None:
        """The threads of one process that are new."""
        try:
            for thread in set(os.listdir(f"/proc/{pid}/task")) - threads:
                path = f"/proc/{pid}/task/{thread}/stat"
                self.tasks[f"{pid}/{thread}"] = Task(path, kind, True, self.looks > 0)
                threads.add(thread)
        except OSError:
            return

    def drop(self, key: str) -> None:
        """One that has ended."""
        task = self.tasks.pop(key, None)
        if task is not None:
            task.close()
        pid, _, thread = key.partition("/")
        self.whole.get(pid, set()).discard(thread)

    def sample(self, pids: Set[str], clients: Set[str]) -> Optional[Dict[str, List[Any]]]:
        """By class: ticks (user, system; its busiest thread's), its number, name, and us that
        threads of Ceph and of clients waited for a CPU; None if not due."""
        self.looks += 1
        if self.looks % self.every:
            return None
        self.scan(pids, clients)
        classes = {}  # type: Dict[str, List[Any]]
        turn = self.looks // self.every
        for number, (key, task) in enumerate(list(self.tasks.items())):
            if task.is_quiet and (number + turn) % _SELDOM:
                continue
            try:
                user, system = task.moved()
                # Of one that gets no CPU at all as well, and rarely of one that sleeps.
                is_due = user or system or not (number + turn) % _SELDOM
                waited = task.waited_us() if is_due else 0
            except (OSError, ValueError, IndexError):
                self.drop(key)
                continue
            task.is_quiet = not task.is_eager and not (user or system)
            if user or system or waited:
                share = (user + system) // max(turn - task.looked, 1)
                count(classes, key, task, (user, system, share, waited))
            task.looked = turn
        eager = sum(task.is_eager for task in self.tasks.values())
        cost = eager + (len(self.tasks) - eager) // _SELDOM
        self.every = 1 + (cost - 1) // _THREADS_A_SECOND if cost else 1
        return classes


def count(classes: Dict[str, List[Any]], key: str, task: Task, used: Tuple[int, ...]) -> None:
    """Add to its class a thread's user and system ticks, those of one look, and us of waiting."""
    kind = task.kind or class_of(task.name, "ceph-rest" if task.is_eager else "kernel")
    waits = [0] if task.is_eager and _HAS_DELAYS else []
    total = classes.setdefault(kind, [0, 0, 0, 0, "", *waits])
    total[0] += used[0]
    total[1] += used[1]
    if used[2] > total[2]:
        total[2:5] = [used[2], int(key.rpartition("/")[2]), task.name]
    if waits:
        total[5] += used[3]


class Kernel:
    """The kernel's own counters, as differences to the last time."""

    def __init__(self) -> None:
        self.last = {}  # type: Dict[str, Any]
        self.looks = 0
        self.nodes = numa_nodes()
        self.states = idle_states()
        self.frequencies = glob.glob("/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq")
        self.sample()

    def since(self, key: str, values: List[int]) -> Optional[List[int]]:
        """The differences; None where nothing moved, or where this is the first time."""
        before = self.last.get(key)
        self.last[key] = values
        if before is None or before == values or len(before) != len(values):
            return None
        return [new - old for new, old in zip(values, before)]

    def sample(self) -> Dict[str, Any]:
        """What moved, by kind; `running` and `blocked` are of now."""
        line = self.processors(read("/proc/stat"))
        line["net"] = dict(self.network())
        line["disk"] = dict(self.disks())
        for what in ("cpu", "io"):
            pressure = self.since(f"psi {what}", pressure_of(what))
            if pressure:
                line[f"psi_{what}"] = pressure
        if self.looks % 10 == 0:
            line.update(self.seldom())
        self.looks += 1
        return line

    def processors(self, stat: str) -> Dict[str, Any]:
        """All together, of each NUMA node, and the busiest; ticks."""
        line = {}  # type: Dict[str, Any]
        busy = {}  # type: Dict[int, int]
        for text in stat.split("\n"):
            name, _, rest = text.partition(" ")
            if name == "cpu":
                line["cpu"] = self.since("cpu", list(map(int, rest.split()[:8]))) or [0] * 8
            elif name.startswith("cpu"):
                user, nice, system, _, _, irq, softirq = map(int, rest.split()[:7])
                moved = self.since(name, [user + nice + system + irq + softirq])
                busy[int(name[3:])] = moved[0] if moved else 0
            elif name == "ctxt":
                line["ctxt"] = (self.since(name, [int(rest)]) or [0])[0]
            elif name in ("procs_running", "procs_blocked"):
                line[name[6:]] = int(rest)
        if busy:
            top = max(busy, key=lambda cpu: busy[cpu])
            line["top_cpu"] = [top, busy[top]]
        if len(self.nodes) > 1:
            line["numa"] = [sum(busy.get(cpu, 0) for cpu in cpus) for cpus in self.nodes]
        return line

    def network(self) -> Iterator[Tuple[str, List[int]]]:
        """Of each link: bytes and packets received, bytes and packets sent."""
        for text in read("/proc/net/dev").split("\n"):
            name, colon, rest = text.partition(":")
            if colon:
                words = rest.split()
                moved = self.since(f"net {name}", [int(words[part]) for part in (0, 1, 8, 9)])
                if moved:
                    yield name.strip(), moved

    def disks(self) -> Iterator[Tuple[str, List[int]]]:
        """Of each device: reads, writes, ms that both took, sectors of both, ms busy, flushes."""
        for text in read("/proc/diskstats").split("\n"):
            words = text.split()
            if len(words) < 14 or words[2].startswith("ram"):
                continue
            part = [int(word) for word in words[3:]] + [0] * 17
            values = [part[0], part[4], part[3], part[7], part[2], part[6], part[9], part[15]]
            moved = self.since(f"disk {words[2]}", values)
            if moved:
                yield words[2], moved

    def seldom(self) -> Dict[str, Any]:
        """Mean frequency in MHz, and time in each idle state in us, where /sys has them."""
        line = {}  # type: Dict[str, Any]
        try:
            values = [int(read(path)) for path in self.frequencies[:16]]
            if values:
                line["mhz"] = sum(values) // len(values) // 1000
            totals = [sum(int(read(path)) for path in paths) for _, paths in self.states]
        except (OSError, ValueError):
            return line
        moved = self.since("idle", totals)
        if moved:
            line["idle"] = moved
        return line


def pressure_of(what: str) -> List[int]:
    """Microseconds in which some, and all, waited for it; empty where the kernel does not count."""
    try:
        return [int(us) for us in re.findall(r"total=(\d+)", read(f"/proc/pressure/{what}"))]
    except OSError:
        return []


def numa_nodes() -> List[List[int]]:
    """The processors of each node."""
    nodes = []
    for path in sorted(glob.glob("/sys/devices/system/node/node[0-9]*/cpulist")):
        cpus = []  # type: List[int]
        for part in filter(None, read(path).strip().split(",")):
            first, _, last = part.partition("-")
            cpus += range(int(first), int(last or first) + 1)
        nodes.append(cpus)
    return nodes


def idle_states() -> List[Tuple[str, List[str]]]:
    """Name of each idle state, and the files that count its time; of 64 processors at most."""
    states = []
    for path in sorted(glob.glob("/sys/devices/system/cpu/cpu0/cpuidle/state*")):
        state = os.path.basename(path)
        files = glob.glob(f"/sys/devices/system/cpu/cpu[0-9]*/cpuidle/{state}/time")
        states.append((read(f"{path}/name").strip(), sorted(files)[:64]))
    return states


class Times:
    """What each client process had used when it was last seen, by its number and its start."""

    def __init__(self) -> None:
        self.used = {}  # type: Dict[Tuple[str, str], Tuple[int, int]]

    def sample(self, pids: Set[str]) -> str:
        """A time in s, and the user and system ticks of all so far, of those that ended too."""
        now = time.time()
        for pid in pids:
            try:
                fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
            except OSError:
                continue
            self.used[pid, fields[19]] = int(fields[11]), int(fields[12])
        user, system = (sum(used[part] for used in self.used.values()) for part in (0, 1))
        return f"{now:.3f} {user} {system}\n"


class Zones:
    """RAPL's zones that can be read."""

    def __init__(self, folder: str) -> None:
        self.header, self.files = "", []  # type: str, List[str]
        for zone in sorted(glob.glob(f"{folder}/intel-rapl:*")):
            try:
                most, name = read(f"{zone}/max_energy_range_uj"), read(f"{zone}/name")
                read(f"{zone}/energy_uj")
            except OSError:
                continue
            self.header += f"# zone {os.path.basename(zone)} {most.strip()} {name.strip()}\n"
            self.files.append(f"{zone}/energy_uj")

    def sample(self) -> str:
        """A time in s, and what each zone has counted."""
        counted = [read(path).strip() for path in self.files]
        return " ".join([f"{time.time():.9f}", *counted]) + "\n"


class Recorder:
    """The files of one host. Each sample is written at once: the host may be lost any time."""

    def __init__(self, asked: Dict[str, Any]) -> None:
        self.folder = asked["folder"]
        self.clients = Clients(asked)
        self.zones = Zones(asked["powercap"])
        self.energy = self.opened("energy", self.zones.header) if self.zones.files else None
        self.times = Times()
        ticks = os.sysconf("SC_CLK_TCK")
        self.used = None
        if asked["has_clients"]:
            self.used = self.opened("clients_cpu", f"# ticks a second: {ticks}\n")
        self.kernel, self.tasks = Kernel(), Tasks()
        self.tasks.scan(*self.present())
        header = {
            "format": 1,
            "t": round(time.time(), 3),
            "hz": ticks,
            "cpus": os.cpu_count(),
            "boot": read("/proc/sys/kernel/random/boot_id").strip(),
            "link_mbit": dict(speeds()),
            "shaped_bytes_per_s": dict(shaped()),
            "idle_states": [name for name, _ in self.kernel.states],
        }
        self.recording = self.opened("recording", json.dumps(header) + "\n")

    def opened(self, name: str, header: str) -> Any:
        """A file of this folder that begins so."""
        file = open(f"{self.folder}/{name}", "wb", buffering=0)  # noqa: SIM115 - until the end
        file.write(header.encode("utf-8", "replace"))
        return file

    def present(self) -> Tuple[Set[str], Set[str]]:
        """All processes that are there now, and the clients among them."""
        pids = set(filter(str.isdigit, os.listdir("/proc")))
        return pids, set(self.clients.among(pids))

    def sample(self) -> None:
        """One line for each file."""
        pids, clients = self.present()
        if self.energy is not None:
            self.energy.write(self.zones.sample().encode())
        if self.used is not None:
            self.used.write(self.times.sample(clients).encode())
        line = {"t": round(time.time(), 3)}  # type: Dict[str, Any]
        line.update(self.kernel.sample())
        threads = self.tasks.sample(pids, clients)
        if threads is not None:
            line["threads"] = threads
            line["every"] = self.tasks.every
        text = json.dumps({k: v for k, v in line.items() if v != {}}, separators=(",", ":"))
        self.recording.write((text + "\n").encode("utf-8", "replace"))

    def is_wanted(self) -> bool:
        """Whether the run's directory is still there: a file of it that was removed is the end."""
        return os.path.exists(f"{self.folder}/recording")


def shaped() -> Iterator[Tuple[str, int]]:
    """Of each link that a tc-tbf or tc-netem slows down, the bytes a second that it may send."""
    command = ["tc", "-j", "qdisc", "show"]
    try:
        said = subprocess.check_output(command, stderr=subprocess.DEVNULL, timeout=5)
        for queue in json.loads(said.decode("utf-8", "replace")):
            rate = queue["options"].get("rate")
            rate = rate["rate"] if isinstance(rate, dict) else rate
            if rate:
                yield str(queue["dev"]), int(rate)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError, AttributeError):
        return


def main(asked: Dict[str, Any]) -> None:
    """Record in `folder` until SIGTERM or until the file goes; `powercap` has RAPL's zones."""
    # Waited for below, and so not delivered: a sample is never cut in the middle.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with contextlib.suppress(OSError, ValueError):  # Root may have more, if he is the host's.
        most = int(read("/proc/sys/fs/nr_open"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    recorder = Recorder(asked)
    while recorder.is_wanted():
        recorder.sample()
        # On the beat of the clock, as the samples of other hosts are.
        if signal.sigtimedwait([signal.SIGTERM], to_next_beat(1)):
            recorder.sample()
            break


if __name__ == "__main__":
    main(json.loads(sys.stdin.read()))
