"""What the image is made of: packages, excluded paths and set-up, all files of `recipe/`."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

RECIPE = Path(__file__).parent / "recipe"
#: Parts of this machine's apt configuration that a builder needs as well: how the archive is
#: reached, and whether one that lags behind will do.
_APT_OPTIONS = re.compile(
    r"^(Acquire::(?:Check-Valid-Until|(?:https?|ftp)::(?:Proxy|Verify-\w+|CAInfo)(?:::\S+)?))"
    r' "(.+)";$'
)
#: What apt and dpkg shall do differently for a root file system that is made once and read often.
_DPKG_OPTIONS = ("force-unsafe-io",)


def key(suite: str) -> str:
    """A name for the image that changes with everything it is made of.

    `suite` is Debian's name for the release whose packages it has.
    """
    digest = hashlib.sha256(repr((suite, _DPKG_OPTIONS)).encode())
    for path in sorted(RECIPE.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def entries(name: str) -> list[str]:
    """The lines of a recipe file, without comments."""
    lines = (line.strip() for line in (RECIPE / name).read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def isolated(command: Sequence[str]) -> list[str]:
    """`command` with mounts and processes of its own, which end with this process.

    Without root's rights it gets a user namespace in which it has the ids a root file system
    needs; newuidmap and a range in /etc/subuid are needed for that.
    """
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user", "--map-auto"]
    return [
        *("setpriv", "--pdeathsig", "KILL", "--"),
        *("unshare", *user, "--mount", "--propagation", "private"),
        *("--pid", "--fork", "--kill-child", "--mount-proc", "--"),
        *command,
    ]


def environment() -> dict[str, str]:
    """The builders' environment: no questions, no initrd, messages that can be recognized."""
    return {
        **os.environ,
        # What makes file systems is not on the path of every user.
        "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin",
        "DEBIAN_FRONTEND": "noninteractive",
        "INITRD": "No",
        "LC_ALL": "C.UTF-8",
    }


def mmdebstrap(suite: str, root: Path, mirror: Optional[str]) -> list[str]:
    """The command that makes the tree `root`; mmdebstrap resolves all packages at once."""
    options = [*_DPKG_OPTIONS, *(f"path-exclude={path}" for path in entries("excludes.txt"))]
    return [
        *("mmdebstrap", "--variant=minbase", "--format=directory"),
        f"--include={','.join(entries('packages.txt'))}",
        *('--aptopt=APT::Install-Recommends "false"', '--aptopt=Acquire::Retries "3"'),
        *(f"--aptopt={option}" for option in host_apt_options()),
        *(f"--dpkgopt={option}" for option in options),
        f'--customize-hook=sh {shlex.quote(str(RECIPE / "setup.sh"))} "$1"',
        *(suite, str(root)),
        *([mirror] if mirror else []),
    ]


def debootstrap(suite: str, root: Path, mirror: Optional[str]) -> list[str]:
    """The command that makes the same tree with debootstrap. Needs root."""
    script = str(RECIPE / "debootstrap.sh")
    options = "".join(f"{option};\n" for option in host_apt_options())
    return ["env", f"APT_OPTIONS={options}", "sh", script, suite, str(root),
            *([mirror] if mirror else [])]  # fmt: skip


def host_apt_options() -> list[str]:
    """This machine's apt options that the builders take over, each as `Name "value"`."""
    try:
        dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return []
    matches = map(_APT_OPTIONS.match, dump.stdout.splitlines())
    return [f'{match[1]} "{match[2]}"' for match in matches if match]


def host_mirror() -> Optional[str]:
    """The Debian archive that this machine's own apt uses; None when it uses none.

    The builders then have a default of their own.
    """
    query = ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return None
    for line in answer.splitlines():
        origin, label, uri = line.split("|", 2)
        if (origin, label) == ("Debian", "Debian"):
            return uri
    return None
