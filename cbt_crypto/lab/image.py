"""The root file system that all nodes share: built once for each recipe, then only read."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import struct
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.hosts import directory_on_host
from cbt_crypto.hosts.directories import cache_dir
from cbt_crypto.lab.shape import Steps, check_mounts, locked, need_space

RECIPE = Path(__file__).parent / "recipe"
#: Parts of this machine's apt configuration that a builder needs as well: how the archive is
#: reached, and whether one that lags behind will do.
_APT_OPTIONS = re.compile(
    r"^(Acquire::(?:Check-Valid-Until|(?:https?|ftp)::(?:Proxy|Verify-\w+|CAInfo)(?:::\S+)?))"
    r' "(.+)";$'
)
#: What apt and dpkg shall do differently for a root file system that is made once and read often.
_DPKG_OPTIONS = ("force-unsafe-io",)
_WITHOUT_CAMPAIGNS = Path(__file__).with_name("without_campaigns.sh")


def key(suite: str) -> str:
    """A name for the image of Debian's `suite` that changes with everything it is made of."""
    digest = hashlib.sha256(repr((suite, _DPKG_OPTIONS)).encode())
    for path in sorted(RECIPE.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def entries(name: str) -> list[str]:
    """The lines of a recipe file, without comments."""
    lines = (line.strip() for line in (RECIPE / name).read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def isolated(command: Sequence[str]) -> list[str]:
    """`command` with mounts and processes of its own; without root by /etc/subuid and newuidmap."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user", "--map-auto"]
    return [
        *("setpriv", "--pdeathsig", "KILL", "--"),
        *("unshare", *user, "--mount", "--propagation", "slave"),
        *("--pid", "--fork", "--kill-child", "--mount-proc", "--"),
        *("sh", str(_WITHOUT_CAMPAIGNS), directory_on_host.MARKER, *command),
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
    """The Debian archive that this machine's own apt uses, or None."""
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


#: Space that building needs: the tree, the packages while they are unpacked, and the ext4 image.
_BUILD_SPACE = 4 * 2**30
#: Size that the file system of a vm node pretends to have; the image file is sparse.
SYSTEM_SIZE = 24 << 30
_SECTOR = 512
SYSTEM_START = 1 << 20
_EXT4 = (
    *("-t", "ext4", "-O", "^has_journal", "-m", "0"),
    *("-E", f"root_owner=0:0,offset={SYSTEM_START}"),
)
#: Of the disk, in its partition table, and so the kernel's name for its one partition.
_DISK_ID = 0xCB7C1AB0
SYSTEM_ID = f"{_DISK_ID:08x}-01"

#: What builders say -> what it means for a person.
_FAILURES = (
    (r"No space left on device", "the disk is full; free some space or set XDG_CACHE_HOME"),
    (
        r"Could not resolve|Temporary failure resolving|Unable to connect|Could not connect"
        r"|Connection (timed out|refused)|Failed to fetch|Couldn't download|Invalid Release"
        r"|does not have a Release file",
        "the Debian package index cannot be reached; check the network, or name one with --mirror",
    ),
    (
        r"NO_PUBKEY|not signed|keyring",
        "Debian's keys are missing or too old; install or update the package "
        "debian-archive-keyring",
    ),
    (
        r"newuidmap|no line starting with|subuid",
        "this user has no subordinate ids; install uidmap, add a range to /etc/subuid and "
        "/etc/subgid, or build the image once as root",
    ),
)


@dataclass(frozen=True)
class Image:
    """One built image. `root` is there only where the image was built as root."""

    directory: Path

    @property
    def key(self) -> str:
        """The digest of the recipe that it was built from, which names its directory."""
        return self.directory.name

    @property
    def root(self) -> Path:
        """The tree, for namespaces."""
        return self.directory / "root"

    @property
    def kernel(self) -> Path:
        """The kernel, for direct boot."""
        return self.directory / "vmlinuz"

    @property
    def system(self) -> Path:
        """A disk for virtual machines: the tree as an ext4 file system in its one partition."""
        return self.directory / "system.ext4"


def images_dir() -> Path:
    """Where images are, one directory a recipe key."""
    return cache_dir() / "images"


def provide(suite: str, steps: Steps, mirror: Optional[str] = None) -> Image:
    """The image with a Debian suite's packages from `mirror`, built now when there is none.

    Raises UsageError when a builder or space is missing, RunError when building fails.
    """
    image = Image(images_dir() / key(suite))
    with _building(image, steps):
        # setuid programs of a tree that nobody updates are for nobody else.
        images_dir().chmod(0o700)
        if not image.kernel.exists():
            _build(image, suite, steps, mirror)
    return image


def provide_system(image: Image, steps: Steps) -> None:
    """Make `image.system`, when it is not there: an ext4 file made without mounting anything."""
    with _building(image, steps):
        if not image.system.exists():
            steps.begin("Making the file system of virtual nodes")
            _make_system(image.root, image.system, image.directory / "system.log")


def size() -> int:
    """Bytes that the cached images take, as du tells while one is built, too; 0 without any."""
    command = ["du", "-sB1", str(images_dir())]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return int(told.split()[0]) if told else 0


def _building(image: Image, steps: Steps) -> contextlib.AbstractContextManager[None]:
    waiting = "Waiting for another process that builds the same image"
    return locked(image.directory.with_suffix(".lock"), lambda: steps.begin(waiting))


def _build(image: Image, suite: str, steps: Steps, mirror: Optional[str]) -> None:
    builder = _builder()
    need_space(image.directory, _BUILD_SPACE, "building the lab image")
    steps.begin("Building the lab image, once (about 3 minutes)")
    unfinished = image.directory.with_suffix(".unfinished")
    remove_tree(unfinished)
    unfinished.mkdir(parents=True)
    log = image.directory.with_suffix(".log")
    log.unlink(missing_ok=True)
    new = Image(unfinished)
    command = builder(suite, new.root, mirror or host_mirror())
    run(isolated(command), log, steps.detail)
    _copy_kernel(new)
    if os.geteuid() != 0:
        # The tree belongs to ids that only a user namespace has: keep what everybody can read.
        steps.detail("making its file system")
        _make_system(new.root, new.system, log)
        remove_tree(new.root)
    unfinished.rename(image.directory)


def _builder() -> Callable[[str, Path, Optional[str]], list[str]]:
    if shutil.which("mmdebstrap"):
        return mmdebstrap
    if shutil.which("debootstrap") and os.geteuid() == 0:
        return debootstrap
    raise UsageError("building the lab image needs mmdebstrap; install the package mmdebstrap")


def _copy_kernel(image: Image) -> None:
    kernels = sorted((image.root / "boot").glob("vmlinuz-*"))
    if not kernels:
        raise RunError(
            f"the image in {image.root} has no kernel below /boot; remove {image.directory} and "
            "run lab up again"
        )
    shutil.copyfile(kernels[-1], image.kernel)


def check_tools() -> None:
    """Raise UsageError when what makes the file system of virtual machines is missing."""
    if not shutil.which("mke2fs", path=environment()["PATH"]):
        raise UsageError("mke2fs is missing; install the package e2fsprogs")


def _make_system(tree: Path, target: Path, log: Path) -> None:
    unfinished = target.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    command = ["mke2fs", "-q", *_EXT4, "-d", str(tree), str(unfinished), f"{SYSTEM_SIZE >> 10}k"]
    run(isolated(command), log)
    add_partition(unfinished)
    unfinished.rename(target)


def add_partition(disk: Path) -> None:
    """Put a partition table (MBR) before the file system that begins at SYSTEM_START.

    A kernel without an initrd finds its root file system by this and by no label.
    """
    first, sectors = SYSTEM_START // _SECTOR, SYSTEM_SIZE // _SECTOR
    linux, no_place = 0x83, b"\xfe\xff\xff"
    entry = struct.pack("<B3sB3sII", 0, no_place, linux, no_place, first, sectors)
    with disk.open("r+b") as file:
        file.truncate(SYSTEM_START + SYSTEM_SIZE)
        file.write(struct.pack("<440sIH64sH", b"", _DISK_ID, 0, entry, 0xAA55))


def remove_tree(tree: Path) -> None:
    """Remove an image, or all there are: the next `lab up` builds one again."""
    check_mounts(tree, "an image of labs")
    try:
        shutil.rmtree(tree)
    except FileNotFoundError:
        return
    except PermissionError:
        subprocess.run(isolated(["rm", "-rf", "--", str(tree)]), check=True)


def run(
    command: Sequence[str], log: Path, on_stage: Optional[Callable[[str], None]] = None
) -> None:
    """Run a builder with its output in `log`; RunError says what went wrong and where it is."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(),
        )
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            if on_stage and line.startswith(b"I: "):
                on_stage(line[3:].decode(errors="replace").strip().rstrip("."))
        status = process.wait()
    if status != 0:
        raise RunError(explain(log.read_text(errors="replace"), log))


def explain(output: str, log: Path) -> str:
    """One sentence for a builder's failure, from all it printed."""
    for pattern, meaning in _FAILURES:
        if re.search(pattern, output):
            return f"building the lab image failed: {meaning} (log: {log})"
    errors = [line[3:] for line in output.splitlines() if line.startswith("E: ")]
    last = errors[-1] if errors else (output.strip().splitlines() or ["no output"])[-1]
    return f"building the lab image failed: {last} (log: {log})"
