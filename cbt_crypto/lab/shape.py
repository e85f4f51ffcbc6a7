"""What a lab is asked to be, what it is, and what a person sees while its nodes start."""

from __future__ import annotations

import contextlib
import enum
import fcntl
import ipaddress
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Optional, Union

from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console
from rich.status import Status
from rich.text import Text
from typing_extensions import Self

from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.directories import cache_dir
from cbt_crypto.hosts.directory_on_host import mounts_below
from cbt_crypto.units import size_text

_FIRST_NODE = 10
#: Nodes 0..N have the addresses .10 .. .10+N of their network, whose .1 is the host's.
MOST_NODES = 32
MOST_THREADS = 2
MOST_NUMA = 8


class Kind(str, enum.Enum):
    """What a node is made of."""

    VM = "vm"
    NAMESPACE = "namespace"

    @property
    def noun(self) -> str:
        """What several of them are called."""
        return {Kind.VM: "virtual machines", Kind.NAMESPACE: "namespace nodes"}[self]


class Release(str, enum.Enum):
    """A release of Ceph that nodes can have: one that Debian packages."""

    REEF = "reef"
    TENTACLE = "tentacle"

    @property
    def suite(self) -> str:
        """Debian's release that packages it: 13, and its next."""
        return {Release.REEF: "trixie", Release.TENTACLE: "forky"}[self]


class Shape(BaseModel):
    """What `lab up` asks for. Sizes in bytes; memory and cpus are those of one vm node."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    ceph: Release = Release.REEF
    #: Other releases, below /opt/ceph-RELEASE of namespace nodes.
    also: tuple[Release, ...] = ()
    nodes: int = Field(ge=1, le=MOST_NODES)
    disks: int = Field(ge=0, le=16)
    disk_size: int = Field(gt=0)
    memory: int = Field(gt=0)
    cpus: int = Field(ge=1)
    #: NUMA nodes of a vm node.
    numa: int = Field(1, ge=1, le=MOST_NUMA)
    #: Hyperthreads of each core of a vm node.
    threads: int = Field(1, ge=1, le=MOST_THREADS)

    def describe(self) -> str:
        """The shape as options of `lab up`."""
        text = f"--kind {self.kind.value} --ceph {self.ceph.value}"
        text += "".join(f" --also {release.value}" for release in self.also)
        text += f" --nodes {self.nodes} --disks {self.disks}"
        if self.disks:
            text += f" --disk-size {size_text(self.disk_size)}"
        if self.kind is Kind.VM:
            text += f" --memory {size_text(self.memory)} --cpus {self.cpus}"
        if self.numa > 1:
            text += f" --numa {self.numa}"
        if self.threads > 1:
            text += f" --threads {self.threads}"
        return text


class Node(BaseModel):
    """One node: how the others reach it, and how this machine does."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    address: str
    ssh_host: str
    ssh_port: int


class Lab(BaseModel):
    """A lab that exists, as it is kept in its lab.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    directory: Path
    shape: Shape
    image: str
    network: ipaddress.IPv4Network
    nodes: tuple[Node, ...]
    #: What runs the guests' CPUs: kvm, tcg, or none for namespaces.
    accelerator: str

    @classmethod
    def of(
        cls, name: str, shape: Shape, image: str, network: ipaddress.IPv4Network,
        ssh_ends: Sequence[tuple[Optional[str], int]], accelerator: str,
    ) -> Lab:  # fmt: skip
        """The lab of that name, with its nodes."""
        nodes = make_nodes(network, ssh_ends)
        return cls(name=name, directory=lab_dir(name), shape=shape, image=image, network=network,
                   nodes=nodes, accelerator=accelerator)  # fmt: skip

    @property
    def head(self) -> Node:
        """The node on which campaigns are started."""
        return self.nodes[0]

    def node_dir(self, node: Node) -> Path:
        """What belongs to one node: disks, log, seed."""
        return self.directory / node.name

    def console(self, node: Node) -> Path:
        """What the node said while it started."""
        return self.node_dir(node) / "console.log"

    def qemu_log(self, node: Node) -> Path:
        """What QEMU said of it."""
        return self.node_dir(node) / "qemu.log"


def make_nodes(
    network: ipaddress.IPv4Network, ssh_ends: Sequence[tuple[Optional[str], int]]
) -> tuple[Node, ...]:
    """node0, node1, ...: addresses in `network`, and host (None: its own) and port of sshd."""
    nodes = []
    for index, (host, port) in enumerate(ssh_ends):
        address = str(network.network_address + _FIRST_NODE + index)
        nodes.append(
            Node(name=f"node{index}", address=address, ssh_host=host or address, ssh_port=port)
        )
    return tuple(nodes)


def lab_dir(name: str) -> Path:
    """Everything that belongs to one lab; it is gone when the lab is down."""
    return cache_dir() / "labs" / name


@contextlib.contextmanager
def locked(path: Path, busy: Union[str, Callable[[], None]]) -> Iterator[None]:
    """Hold a lock on `path`, which a holder may remove; else raise `busy`, or call it and wait."""
    # Not filelock: it may take its lock on a file that the holder has just removed.
    path.parent.mkdir(parents=True, exist_ok=True)
    with _lock_file(path, busy):
        yield


#: A child of a killed holder has its lock until it becomes another program.
_PASSES_S = 2.0


def _lock_file(path: Path, busy: Union[str, Callable[[], None]]) -> IO[str]:
    ends = time.monotonic() + _PASSES_S
    while True:
        # Who can open it can lock it, and hold up this.
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "a")
        os.fchmod(file.fileno(), 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if isinstance(busy, str):
                file.close()
                if time.monotonic() > ends:
                    raise UsageError(busy) from None
                time.sleep(0.05)
                continue
            busy()
            fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return file
        # Whoever held it removed the file in between: the lock is on nothing.
        file.close()


def check_mounts(directory: Path, what: str) -> None:
    """Raise UsageError where removing the directory would empty what somebody mounted in it."""
    place = Path(os.path.realpath(directory))
    for mount in mounts_below(str(place.parent)):
        if place in (Path(mount), *Path(mount).parents):
            raise UsageError(f"{mount} is mounted in {what}; unmount it")


def need_space(path: Path, size: int, what: str) -> None:
    """Raise UsageError unless the file system of `path` has `size` bytes left for `what`."""
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < size:
        raise UsageError(
            f"{what} needs {gigabytes(size)} below {path}, which has {gigabytes(free)} left; "
            "free some space, or set XDG_CACHE_HOME to a larger file system"
        )


def gigabytes(size: int) -> str:
    """A size in bytes as people read it, in binary gigabytes."""
    return f"{size / 2**30:.1f} GiB"


class Steps:
    """Show one step at a time, with a spinner on a terminal, and how long each took."""

    def __init__(self, console: Console) -> None:
        """`console` should write to stderr: stdout belongs to results."""
        self._console = console
        self._status: Optional[Status] = None
        self._text = ""
        self._started = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Finish the running step; one that was broken off is not called done."""
        self._finish(done=error is None)

    def begin(self, text: str) -> None:
        """The step before is done, and this one runs."""
        self._finish(done=True)
        self._text = text
        self._started = time.monotonic()
        if self._console.is_terminal:
            self._status = self._console.status(text)
            self._status.start()

    def end(self) -> None:
        """The running step is done, and none runs: what follows writes for itself."""
        self._finish(done=True)

    def detail(self, text: str) -> None:
        """What the running step is doing now; shown on a terminal only."""
        if self._status:
            self._status.update(f"{self._text}: {text}")

    def _finish(self, done: bool) -> None:
        if self._status:
            self._status.stop()
            self._status = None
        if self._text and done:
            seconds = time.monotonic() - self._started
            line = f"{self._text}  {seconds:.0f} s"
            self._console.print(Text(line), soft_wrap=True)
        self._text = ""
