"""Judge a build of Ceph below a prefix, and make programs that start it. Runs on hosts: Python 3.6.

Root runs what is there, so nobody else may be able to change it.
"""

import glob
import json
import os
import shlex
import struct
import sys
import typing
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Set, Tuple

from cbt_crypto.hosts.directory_on_host import Refused, check_way
from cbt_crypto.hosts.trust_on_host import distrust, owners

#: Programs that a deployment starts; each must be in the build.
PROGRAMS = (
    "ceph-mon", "ceph-mgr", "ceph-osd", "ceph-authtool", "monmaptool", "osdmaptool", "ceph-conf",
)  # fmt: skip
#: What an ELF file's parts and tags are called.
_LOADED, _DYNAMIC, _STRINGS, _SEARCHED = 1, 2, 5, (15, 29)
_LOADERS = ("lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1")


class Layout(typing.NamedTuple):
    """Where things are in a build, or None; `options`: a Ceph option and its directory."""

    programs: Dict[str, str]
    libraries: List[str]
    loader: Optional[str]
    python_home: Optional[str]
    options: List[Tuple[str, str]]


def may_own(as_root: bool) -> Set[int]:
    """Who may own what is started: root, and where root does not start it the user himself."""
    return {0} if as_root else owners()


def check_owners(prefix: str, as_root: bool) -> None:
    """Raise Refused when others could change what is started, or put another in its place."""
    if os.path.realpath(prefix) != prefix:
        raise Refused(f"{prefix} is reached through a link; name {os.path.realpath(prefix)}")
    if not os.path.isdir(prefix):
        raise Refused(f"{prefix} is no directory; unpack or install a build of Ceph there")
    check_nobody_replaces(prefix, prefix, as_root)
    for path in started(prefix):
        check_owner(path, as_root)
        check_searched(path, prefix)
        real = os.path.realpath(path)
        # What is masked leads to /dev/null, which is nothing that is run.
        leads_out = os.path.islink(path) and not real.startswith(prefix + "/")
        if leads_out and (os.path.isfile(real) or os.path.isdir(real)):
            check_elsewhere(path, real, as_root)


#: Where no other user may write.
_SYSTEM = ("/usr/lib/", "/usr/lib32/", "/usr/lib64/", "/lib/", "/lib32/", "/lib64/")


def check_searched(path: str, prefix: str) -> None:
    """Raise Refused where libraries would be loaded of a directory that is not the build's."""
    try:
        places = list(searched_first(path))
    except (struct.error, LookupError, RuntimeError):
        raise Refused(f"{path} is a damaged program; unpack the build again") from None
    for place in places:
        real = os.path.realpath(place.replace("${ORIGIN}", "$ORIGIN").replace(
            "$ORIGIN", os.path.dirname(path)))  # fmt: skip
        is_of_build = (real + "/").startswith((prefix + "/", *_SYSTEM))
        if not is_of_build or not place.startswith(("/", "$")):
            raise Refused(f"{path} has libraries of {place or 'the working directory'} loaded; "
                          "remove its RPATH with chrpath -d")  # fmt: skip


def searched_first(path: str) -> Iterator[str]:
    """DT_RPATH and DT_RUNPATH of an ELF file of this machine's kind; nothing of any other file."""
    if os.path.islink(path) or not os.path.isfile(path):
        return
    with open(path, "rb") as file:
        head = file.read(64)
        if head[:5] != b"\x7fELF\x02":
            return
        file.seek(struct.unpack_from("=Q", head, 32)[0])
        size, count = struct.unpack_from("=HH", head, 54)
        parts = list(struct.iter_unpack("=IIQQQQQQ", file.read(size * count)))
        tags = []  # type: List[Tuple[int, int]]
        for kind, _, offset, _, _, length, _, _ in parts:
            file.seek(offset)
            tags += list(struct.iter_unpack("=QQ", file.read(length))) if kind == _DYNAMIC else []
        for tag, value in tags:
            if tag in _SEARCHED:
                address = dict(tags)[_STRINGS] + value
                file.seek(next(address - part[3] + part[2] for part in parts if part[0] == _LOADED
                               and part[3] <= address < part[3] + part[5]))  # fmt: skip
                yield from os.fsdecode(file.read(1 << 20).split(b"\0")[0]).split(":")


def check_elsewhere(path: str, real: str, as_root: bool) -> None:
    """Raise Refused when others could change what a link of the build leads to, or its way."""
    check_nobody_replaces(real, path, as_root)
    check_owner(real, as_root)
    try:
        check_way(path)
    except Refused as error:
        raise Refused(f"{path} {error}") from None
    for below in everything_below(real):
        check_owner(below, as_root)


def everything_below(folder: str) -> Iterator[str]:
    """Directories and files, links not followed."""
    for place, folders, files in os.walk(folder):
        for name in folders + files:
            yield os.path.join(place, name)


def check_nobody_replaces(path: str, named: str, as_root: bool) -> None:
    """Raise Refused when others could put something else in the place of `path`."""
    while path != "/":
        path = os.path.dirname(path)
        if distrust(os.lstat(path), may_own(as_root), is_way=True):
            raise Refused(f"{named} can be replaced by those who may write to {path}; move it")


def check_owner(path: str, as_root: bool) -> None:
    """Raise Refused unless it is root's, or ours, and nobody else may write to it."""
    wrong = distrust(os.lstat(path), may_own(as_root))
    if wrong:
        raise Refused(f"{path} {wrong}, and would be run; chown it to root, and chmod go-w it")


def started(prefix: str) -> List[str]:
    """The prefix, and everything that programs of it may load: programs, libraries, modules.

    What links lead to within the prefix comes too, and the directories on the way to each.
    """
    names = [f"{usr}{name}" for usr in ("", "usr/")
             for name in ("bin", "sbin", "lib*", "local/lib", "share/ceph")]  # fmt: skip
    todo = [top for name in names for top in glob.glob(f"{prefix}/{name}") if os.path.isdir(top)]
    for top in todo:
        real = os.path.realpath(top)
        if not (real + "/").startswith(prefix + "/"):
            raise Refused(f"{top} leads to {real}, which is not below {prefix}; copy it there")
    found, followed = {prefix: None}, set()  # type: Dict[str, None], Set[str]
    while todo:
        path = todo.pop()
        real = os.path.realpath(path)
        places = [str(place) for one in (path, real) for place in (Path(one), *Path(one).parents)]
        places = [p for p in places if p.startswith(prefix + "/") and os.path.lexists(p)]
        if real.startswith(prefix + "/") and real not in followed:
            followed.add(real)
            places += everything_below(real)
            todo += filter(os.path.islink, places)
        found.update(dict.fromkeys(places))
    return list(found)


def _first(prefix: str, *patterns: str) -> Optional[str]:
    for pattern in patterns:
        for path in sorted(glob.glob(f"{prefix}/{pattern}")):
            if os.path.isdir(path):
                return path
    return None


def _in_libraries(prefix: str, name: str) -> Optional[str]:
    return _first(
        prefix, *(f"{place}/{name}" for place in ("usr/lib/*", "lib/*", "usr/lib*", "lib*"))
    )


def program_of(prefix: str, name: str) -> str:
    """Where a program is, in a build's own `bin` or a root file system's `usr/bin`."""
    candidates = [f"{prefix}/{place}/{name}" for place in ("usr/bin", "bin", "usr/sbin", "sbin")]
    there = [path for path in candidates if os.access(path, os.X_OK)]
    if not there:
        raise Refused(f"{prefix} has no {name} in bin or usr/bin; install it there")
    return there[0]


def layout(prefix: str) -> Layout:
    """Look where things are. Raises Refused for a build that lacks a program."""
    programs = {name: program_of(prefix, name) for name in PROGRAMS}
    multiarch = os.uname().machine + "-linux-gnu"
    folders = ["usr/lib/" + multiarch, "lib/" + multiarch, "usr/lib64", "usr/lib", "lib64", "lib"]
    libraries = [f"{prefix}/{name}{below}" for name in folders for below in ("", "/ceph")]
    libraries = [path for path in libraries if os.path.isdir(path)]
    loaders = [f"{prefix}/{name}" for name in _LOADERS if os.path.exists(f"{prefix}/{name}")]
    home = f"{prefix}/usr" if glob.glob(f"{prefix}/usr/lib/python3.*/os.py") else None
    plugins = _in_libraries(prefix, "ceph/erasure-code")
    folders_of = [
        ("plugin_dir", plugins and os.path.dirname(plugins)),
        ("erasure_code_dir", plugins),
        ("osd_class_dir", _in_libraries(prefix, "rados-classes")),
        ("mgr_module_path", _first(prefix, "usr/share/ceph/mgr", "share/ceph/mgr")),
    ]
    options = [(option, place) for option, place in folders_of if place]
    return Layout(programs, libraries, loaders[0] if loaders else None, home, options)


def starter(build: Layout, name: str, folder: str) -> str:
    """The program that starts one of the build's, as shell text."""
    options = " ".join(f"--{option}={place}" for option, place in build.options)
    libraries = ":".join(build.libraries)
    program = shlex.quote(build.programs[name])
    lines = ["#!/bin/sh", f"export CEPH_ARGS={shlex.quote(options)}"]
    if build.python_home and build.loader:
        lines.append(f"export PYTHONHOME={shlex.quote(build.python_home)}")
    if build.loader:
        # Nothing but what it starts may meet another C library's loader.
        loader = f"{shlex.quote(renamed(folder, name))} --library-path {shlex.quote(libraries)}"
        lines += [
            "unset LD_LIBRARY_PATH LD_PRELOAD",
            f'exec {loader} --argv0 {name} {program} "$@"',
        ]
    else:
        lines += [f"export LD_LIBRARY_PATH={shlex.quote(libraries)}", f'exec {program} "$@"']
    return "\n".join(lines) + "\n"


def renamed(folder: str, name: str) -> str:
    """A link to the loader under a program's name, by which the kernel and collectl call it."""
    return f"{folder}/loader/{name}"


def replace(path: str) -> str:
    """The path, where nothing is any more."""
    if os.path.lexists(path):
        os.unlink(path)
    return path


def write(prefix: str, folder: str) -> None:
    """Programs in `folder`, below a directory that is ours alone, that start the build's."""
    build = layout(prefix)
    os.makedirs(f"{folder}/loader", 0o755, exist_ok=True)
    for name in PROGRAMS:
        path = replace(os.path.join(folder, name))
        if build.loader:
            os.symlink(build.loader, replace(renamed(folder, name)))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags, 0o755), "w") as file:
            file.write(starter(build, name, folder))


def main() -> int:
    """With JSON: `prefix`, `as_root`; `folder` to write programs; `libraries_alone` of clients."""
    given = json.loads(sys.argv[1])
    # Monitors and managers are the user's, also where root writes what starts them.
    os.umask(0o022)
    try:
        check_owners(given["prefix"], given["as_root"])
        if not given.get("libraries_alone"):
            layout(given["prefix"])
        if given.get("folder"):
            write(given["prefix"], given["folder"])
    except Refused as error:
        sentence = str(error)
    except OSError as error:
        sentence = f"{error.filename}: {error.strerror}"
    else:
        print("ok")
        return 0
    print(sentence, file=sys.stderr if given.get("folder") else sys.stdout)
    return 1 if given.get("folder") else 0


if __name__ == "__main__":
    sys.exit(main())
