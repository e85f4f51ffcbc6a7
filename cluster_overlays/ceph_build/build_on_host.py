"""A build of Ceph below a prefix: judged, and given programs that start it. Runs on the hosts.

Root runs what lies there, so nobody else may be able to change it. Needs nothing but Python 3.6.
"""

import glob
import json
import os
import shlex
import stat
import sys
from typing import Dict, List, Optional, Set

#: Programs that a deployment starts; each must be in the build.
PROGRAMS = (
    "ceph-mon", "ceph-mgr", "ceph-osd", "ceph-authtool", "monmaptool", "osdmaptool", "ceph-conf",
)  # fmt: skip
_LOADERS = ("lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1")


class Refused(Exception):
    """What stands against a build, as one sentence for people."""


def owners(as_root: bool) -> Set[int]:
    """Who may own what is started: root, and where root does not start it the user himself."""
    return {0} if as_root else {0, int(os.environ.get("CBT_CRYPTO_UID") or os.geteuid())}


def check_owners(prefix: str, as_root: bool) -> None:
    """Raise Refused when others could change what is started, or put another in its place."""
    if os.path.realpath(prefix) != prefix:
        raise Refused(f"{prefix} is reached through a link; name {os.path.realpath(prefix)}")
    if not os.path.isdir(prefix):
        raise Refused(f"{prefix} is no directory; unpack or install a build of Ceph there")
    check_above(prefix, prefix, as_root)
    for path in started(prefix):
        check_owner(path, as_root)
        real = os.path.realpath(path)
        # What is masked leads to /dev/null, which is nothing that is run.
        leads_out = os.path.islink(path) and not real.startswith(prefix + "/")
        if leads_out and (os.path.isfile(real) or os.path.isdir(real)):
            check_owner(real, as_root)
            check_above(real, path, as_root)


def check_above(path: str, named: str, as_root: bool) -> None:
    """Raise Refused when others could put something else in the place of `path`."""
    while path != "/":
        path = os.path.dirname(path)
        status = os.lstat(path)
        sticky = status.st_mode & stat.S_ISVTX
        if status.st_uid not in owners(as_root) or (status.st_mode & 0o022 and not sticky):
            raise Refused(f"{named} could be replaced by who may write to {path}; move it")


def check_owner(path: str, as_root: bool) -> None:
    """Raise Refused unless it is root's, or ours, and nobody else may write to it."""
    status = os.lstat(path)
    if status.st_uid not in owners(as_root):
        raise Refused(
            f"{path} belongs to uid {status.st_uid}, who could change what is run; chown it to root"
        )
    if status.st_mode & 0o022 and not stat.S_ISLNK(status.st_mode):
        raise Refused(f"{path} can be written to by others, and would be run; chmod go-w it")


def started(prefix: str) -> List[str]:
    """The prefix, and everything that programs of it may load: programs, libraries, modules."""
    paths = [prefix]
    tops = [f"{prefix}/{usr}{name}" for usr in ("", "usr/")
            for name in ("bin", "sbin", "lib", "lib64", "local/lib", "share/ceph")]  # fmt: skip
    if os.path.isdir(prefix + "/usr"):
        paths.append(prefix + "/usr")
    for top in tops:
        real = os.path.realpath(top)
        if os.path.isdir(top) and not (real + "/").startswith(prefix + "/"):
            raise Refused(f"{top} leads to {real}, which is not below {prefix}; copy it there")
        for folder, folders, files in os.walk(top) if not os.path.islink(top) else ():
            paths.append(folder)
            paths += [os.path.join(folder, name) for name in folders + files]
    return paths


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


def layout(prefix: str) -> Dict[str, object]:
    """Where things are in a build: its own `bin` and `lib`, or a root file system's `usr/...`.

    `loader` is the dynamic loader of a root file system, whose C library may be another one.
    """
    programs = {}
    for name in PROGRAMS:
        known = [f"{prefix}/{place}/{name}" for place in ("usr/bin", "bin", "usr/sbin", "sbin")]
        there = [path for path in known if os.access(path, os.X_OK)]
        if not there:
            raise Refused(f"{prefix} has no {name} in bin or usr/bin; install it there")
        programs[name] = there[0]
    multiarch = os.uname().machine + "-linux-gnu"
    folders = ["usr/lib/" + multiarch, "lib/" + multiarch, "usr/lib64", "usr/lib", "lib64", "lib"]
    libraries = [f"{prefix}/{name}{below}" for name in folders for below in ("", "/ceph")]
    libraries = [path for path in libraries if os.path.isdir(path)]
    loaders = [f"{prefix}/{name}" for name in _LOADERS if os.path.exists(f"{prefix}/{name}")]
    home = f"{prefix}/usr" if glob.glob(f"{prefix}/usr/lib/python3.*/os.py") else None
    plugins = _in_libraries(prefix, "ceph/erasure-code")
    return {
        "programs": programs,
        "libraries": libraries,
        "loader": loaders[0] if loaders else None,
        "python_home": home,
        "plugin_dir": os.path.dirname(plugins) if plugins else None,
        "erasure_code_dir": plugins,
        "osd_class_dir": _in_libraries(prefix, "rados-classes"),
        "mgr_module_path": _first(prefix, "usr/share/ceph/mgr", "share/ceph/mgr"),
    }


def starter(found: Dict[str, object], name: str, folder: str) -> str:
    """The program that starts one of the build's, as shell text."""
    keys = ("plugin_dir", "erasure_code_dir", "osd_class_dir", "mgr_module_path")
    options = " ".join(f"--{key}={found[key]}" for key in keys if found[key])
    libraries = ":".join(found["libraries"])  # type: ignore[arg-type]
    program = shlex.quote(found["programs"][name])  # type: ignore[index]
    lines = ["#!/bin/sh", f"export CEPH_ARGS={shlex.quote(options)}"]
    if found["python_home"] and found["loader"]:
        lines.append(f"export PYTHONHOME={shlex.quote(str(found['python_home']))}")
    if found["loader"]:
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
    found = layout(prefix)
    os.makedirs(f"{folder}/loader", 0o755, exist_ok=True)
    for name in PROGRAMS:
        path = replace(os.path.join(folder, name))
        if found["loader"]:
            os.symlink(str(found["loader"]), replace(renamed(folder, name)))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags, 0o755), "w") as file:
            file.write(starter(found, name, folder))


def main() -> int:
    """With a JSON object of `prefix`, `as_root` and, to write the programs, `folder`."""
    given = json.loads(sys.argv[1])
    # Monitors and managers are the user's, also where root writes what starts them.
    os.umask(0o022)
    try:
        check_owners(given["prefix"], given["as_root"])
        layout(given["prefix"])
        if given.get("folder"):
            write(given["prefix"], given["folder"])
    except Refused as error:
        said = str(error)
    except OSError as error:
        said = f"{error.filename}: {error.strerror}"
    else:
        print("ok")
        return 0
    print(said, file=sys.stderr if given.get("folder") else sys.stdout)
    return 1 if given.get("folder") else 0


if __name__ == "__main__":
    sys.exit(main())
