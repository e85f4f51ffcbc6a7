"""A lab's life: up, found again, down."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Optional, Union

from pydantic import ValidationError

from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.hosts import marked_processes
from cbt_crypto.lab import access, image, namespace, vm
from cbt_crypto.lab.shape import Kind, Lab, Shape, Steps, check_mounts, lab_dir, locked


def up(name: str, shape: Shape, steps: Steps, mirror: Optional[str] = None) -> tuple[Lab, bool]:
    """Start the lab `name`, unless it is up in this shape; return it, and whether it was down.

    Raises UsageError when another shape is up or this machine cannot have it, RunError when nodes
    do not start: what was started is ended, and its logs are kept.
    """
    directory = lab_dir(name)
    with _at_work(name):
        existing = find(name)
        if existing and not dead_nodes(existing):
            if existing.shape != shape:
                raise UsageError(
                    f"lab {name} is up with {existing.shape.describe()}; "
                    "run lab down first, or choose another --name"
                )
            return existing, False
        _check_machine(shape)
        _clear(directory)
        built = image.provide(shape.ceph.suite, steps, mirror)
        others = {
            release.value: image.provide(release.suite, steps, mirror).root
            for release in shape.also
        }
        try:
            return _start(name, shape, built, others, steps), True
        except BaseException:
            _end(directory)
            raise


def choose_kind(name: str, shape: Shape, steps: Steps, mirror: Optional[str]) -> tuple[Kind, str]:
    """The kind of node for this machine, and why: with KVM vm, else namespaces with dm-crypt."""
    with _at_work(name):
        existing = find(name)
        if existing:
            return existing.shape.kind, "as it was started"
        if shape.also:
            return Kind.NAMESPACE, "--also is for these alone"
        no_kvm = vm.without_kvm(shape, lambda: _bootable(shape, steps, mirror), steps)
        steps.end()
        if no_kvm is None:
            return Kind.VM, "KVM works here"
        no_luks = namespace.without_luks(lab_dir(name))
        if max(shape.numa, shape.threads) > 1:
            alone = "--numa and --threads are for these alone"
            return Kind.VM, f"{alone}; emulated and slow, as {no_kvm}"
        if no_luks is None:
            return Kind.NAMESPACE, f"with this machine's dm-crypt, at native speed, as {no_kvm}"
        return Kind.VM, f"emulated and slow, as {no_kvm} and {no_luks}"


def _bootable(shape: Shape, steps: Steps, mirror: Optional[str]) -> image.Image:
    built = image.provide(shape.ceph.suite, steps, mirror)
    image.provide_system(built, steps)
    return built


def find(name: str) -> Optional[Lab]:
    """The lab `name` as it was last started, or None when there is none."""
    try:
        return Lab.model_validate_json(_record(lab_dir(name)).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValidationError):
        return None


def names() -> list[str]:
    """The labs that are up, or of which something is left."""
    labs = lab_dir("any").parent
    return sorted(path.name for path in labs.iterdir() if path.is_dir()) if labs.exists() else []


def running(name: str) -> Lab:
    """The lab `name`. Raises UsageError when it is not up."""
    lab = find(name)
    if lab is None:
        raise UsageError(
            f'there is no lab "{name}"; start one with: cbt-crypto lab up --name {name}'
        )
    dead = dead_nodes(lab)
    if dead:
        verb = "is" if len(dead) == 1 else "are"
        raise UsageError(f"{', '.join(dead)} of lab {name} {verb} not running; run lab up again")
    return lab


def remove_images() -> None:
    """Remove the cached images. Raises UsageError where a lab has one, or starts."""
    with contextlib.ExitStack() as idle:
        for lock in lab_dir("any").parent.glob("*.lock"):
            idle.enter_context(_at_work(lock.stem))
        if users := names():
            raise UsageError(
                f"lab {users[0]} uses the image; stop it first with lab down, then repeat this"
            )
        image.remove_tree(image.images_dir())


def dead_nodes(lab: Lab) -> list[str]:
    """Names of the nodes that have no process."""
    return [node.name for node in lab.nodes if not marked_processes.of_lab(lab.node_dir(node))]


def down(name: str) -> bool:
    """End and remove all of lab `name`; return whether there was any. Safe to repeat."""
    directory = lab_dir(name)
    with _at_work(name):
        existed = directory.exists()
        _clear(directory)
        if not existed:
            _check_lost(directory)
        _lock(name).unlink()
    return existed


def _check_lost(directory: Path) -> None:
    """Raise RunError where what a lab had outlives its directory, which told what is the lab's."""
    pids = map(str, marked_processes.of_lab(directory, is_lost=True))
    left = [*(f"process {pid}" for pid in pids), *namespace.lost(directory)]
    if left:
        raise RunError(
            f"{directory} was removed while its lab was up, and with it what proves that these are "
            f"that lab's: {', '.join(left)}; if they are, end the processes with kill -9, detach "
            "the devices with losetup -d, and remove the link with ip link delete"
        )


def _at_work(name: str) -> contextlib.AbstractContextManager[None]:
    busy = f"another lab up or lab down is at work on lab {name}; wait until it ends"
    return locked(_lock(name), busy)


def _lock(name: str) -> Path:
    return lab_dir(name).with_suffix(".lock")


def _record(directory: Path) -> Path:
    return directory / "lab.json"


def _check_machine(shape: Shape) -> None:
    if shape.also and shape.kind is not Kind.NAMESPACE:
        raise UsageError(
            "--also is for nodes of --kind namespace, which share this machine's files"
        )
    if shape.kind is Kind.NAMESPACE:
        namespace.check_machine()
    else:
        vm.check_machine(shape)


def _start(
    name: str, shape: Shape, built: image.Image, others: Mapping[str, Path], steps: Steps
) -> Lab:
    nodes: Union[namespace.Nodes, vm.Nodes]
    if shape.kind is Kind.NAMESPACE:
        nodes = namespace.Nodes(namespace.plan(name, shape, built), built, others)
    else:
        image.provide_system(built, steps)
        host = vm.detect(built, steps)
        nodes = vm.Nodes(vm.plan(name, shape, built, host), built, host)
    lab = nodes.lab
    # Its disks and sockets are its user's alone.
    lab.directory.mkdir(mode=0o700, parents=True)
    for node in lab.nodes:
        lab.node_dir(node).mkdir(parents=True)
    access.make_keys(lab)
    access.write_config(lab)
    steps.begin(f"Starting {len(lab.nodes)} {shape.kind.noun}")
    nodes.start()
    access.wait(lab, nodes.patience_s, nodes.problem, steps.detail)
    nodes.finish()
    _record(lab.directory).write_text(lab.model_dump_json(indent=2), encoding="utf-8")
    return lab


def _end(directory: Path) -> None:
    marked_processes.end_lab(directory)
    namespace.remove(directory)
    namespace.release(directory)


def _clear(directory: Path) -> None:
    """End and remove all of a lab; not under a `lab run`: until it ends, node0 has its results."""
    check_mounts(directory, f"lab {directory.name}'s directory")
    busy = f"a lab run is at work on lab {directory.name}; wait until it ends, or end it"
    there = directory.exists()
    with locked(directory / "run.lock", busy) if there else contextlib.nullcontext():
        _end(directory)
        # A connection that ends with its machine removes its socket meanwhile.
        while directory.exists():
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(directory)
