"""RBD images, and pools, of a cluster that stays: made and removed, mapped and encrypted."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from cbt_crypto.hosts import directories, rados_client_on_host, shell
from cbt_crypto.hosts.ceph_conf import ADMIN
from cbt_crypto.hosts.site import Site, VolumeEncryption

_KEY = "cbt-crypto.run"
_AT_ONCE = 8
#: In the metadata of a pool of upstream's benchmarks: the archive that it was made for.
MADE_FOR = "cbt-crypto.archive"


def made_for(host: str, archive: str) -> str:
    """What such a pool says: where the archive was when the run began, and on which machine."""
    return hashlib.sha256(f"{host}:{os.path.abspath(archive)}".encode()).hexdigest()[:16]


def pools_made(osd_dump: str) -> dict[str, list[Any]]:
    """Pool -> what it says that it was made for; of the JSON of `ceph osd dump`."""
    return {
        pool["pool_name"]: [data.get(MADE_FOR) for data in pool["application_metadata"].values()]
        for pool in json.loads(osd_dump)["pools"]
    }


def turns(names: Sequence[str]) -> int:
    """How many commands follow one another where there is one for each of them."""
    return -(-len(names) // _AT_ONCE)


def create(names: Sequence[str], options: str, rbd: str, run: str = "") -> str:
    """`rbd create` for each of `pool/image`, a few at a time, marked as of `run`, if any."""
    if not run:
        return _each(f"{rbd} create {options}", names)
    return _each(_shell(f'make_image "$1" {options}', rbd, run), names)


def remove_images(names: Sequence[str], rbd: str, run: str) -> str:
    """Remove those that this run made, whole or not; all others stay. Every one is tried."""
    return _each(_shell('remove_image "$1"', rbd, run), names) if names else ""


def present(names: Sequence[str], rbd: str) -> str:
    """Print `there NAME` for each that is there, `unknown NAME WHY` for one that cannot be asked"""
    return _each(_shell('present_image "$1"', rbd), names) if names else ""


def _shell(call: str, rbd: str, run: str = "") -> str:
    text = f"RUN={shlex.quote(run)} KEY={_KEY}\n{_rbd(rbd)}{shell.calling(__file__, call)}"
    return f"sh -c {shlex.quote(text)} sh"


def _rbd(rbd: str) -> str:
    return f'rbd_of_cluster() {{ {rbd} "$@"; }}\n'


def _each(command: str, names: Sequence[str]) -> str:
    lines = "".join(f"{shlex.quote(name)}\n" for name in names)
    return f"xargs -P {_AT_ONCE} -n 1 {command} <<'VOLUMES'\n{lines}VOLUMES"


#: Seconds after which the kernel gives up on a request: OSDs that are gone hold up nothing.
_GIVES_UP_S = 120


def _folder(tmp_dir: str) -> str:
    return f"{tmp_dir}/mapped"


def path(tmp_dir: str, image: str) -> str:
    """The link to what a process opens, while an image is attached."""
    return f"{_folder(tmp_dir)}/{image}.device"


def file(tmp_dir: str, image: str) -> str:
    """The one file in an image's file system, while it is attached."""
    return f"{_mounts(tmp_dir)}/{image}/file"


def _mounts(tmp_dir: str) -> str:
    return f"{tmp_dir}/mnt"


def mapping_prefix(tmp_dir: str) -> str:
    """How the names of dm-crypt's mappings over images begin; a dash and the image follow."""
    return f"cbt-crypto-{hashlib.sha256(tmp_dir.encode()).hexdigest()[:8]}-client"


class Image(NamedTuple):
    """An image to be attached: `on_nbd` by rbd-nbd, else by the kernel's client."""

    pool: str
    name: str
    encryption: Optional[VolumeEncryption] = None
    on_nbd: bool = False


def attach(
    images: Sequence[Image], tmp_dir: str, conf: str,
    rbd: str, formats: bool = False, client_id: str = ADMIN, filesystem: Optional[str] = None,
) -> str:  # fmt: skip
    """Map images, with a link to each at `path`; format new ones.

    With a `filesystem`, which is made in new ones, it is mounted: `file`.
    """
    lines = [f"mkdir -p {shlex.quote(_folder(tmp_dir))}", 'umask 077; keys=""; ask_cluster']
    for each in images:
        place, image = shlex.quote(each.pool), shlex.quote(each.name)
        lines += _attached(each, f"{place} {image}", formats)
        lines.append(f'ln -sfn "$device" "$MAPPED"/{image}.device')
        if filesystem:
            lines += [f"make_files {place} {image} {filesystem}"] if formats else []
            lines.append(f"mount_files {image} {filesystem}")
    settings = _settings(tmp_dir) + _client(conf, client_id) + _rbd(rbd) + directories.functions()
    return as_root(settings + shell.calling(__file__, "\n".join(lines)))


def _attached(image: Image, words: str, formats: bool) -> list[str]:
    attach = f"attach_nbd {words} ''" if image.on_nbd else f"attach {words}"
    encryption = image.encryption
    if encryption is None:
        return [attach]
    keys = '[ -n "$keys" ] || keys=$(key_directory make)'
    how = f"FORMAT={shlex.quote(' '.join(encryption.formatting))}"
    if encryption.by_librbd:
        new = [how, f"format_librbd {words}"] if formats else []
        return [keys, *new, f'attach_nbd {words} "$keys/$PREFIX"-{shlex.quote(image.name)}']
    new = [how, f"format_luks {words}"] if formats else []
    return [attach, keys, *new, f"open_luks {shlex.quote(image.name)}"]


def detach(images: Sequence[str], tmp_dir: str) -> str:
    """Close and unmap these images of ours; what is not mapped is no error."""
    calls = "\n".join(f"detach {shlex.quote(name)}" for name in images)
    return as_root(_settings(tmp_dir) + shell.calling(__file__, calls))


def detach_all(tmp_dir: str) -> str:
    """Unmount what CBT mounted below tmp_dir, unmap what notes there name, and destroy keys."""
    settings = _settings(tmp_dir) + directories.functions()
    calls = 'unmount_below "$MOUNTS"\n[ ! -d "$MAPPED" ] || detach_all'
    inner = as_root(settings + _unmounting(calls))
    is_mounted = f"grep -qsF ' {_mounts(tmp_dir)}/' /proc/mounts"
    return f"if [ -d {shlex.quote(_folder(tmp_dir))} ] || {is_mounted}; then {inner}; fi"


def mount_filled(
    pool: str, image: str, site: Site, rbd: str, read_ahead_kib: int, place: str, fill: str
) -> str:
    """Map an image, make XFS on it, mount it at `place`, in double quotes, and run `fill` there."""
    both = shlex.join([pool, image])
    lines = (
        f"mkdir -p {shlex.quote(_folder(site.tmp_dir))}",
        f"umask 077; ask_cluster; attach {both}",
        f'place="{place}"; mount_new {both} "$place" {read_ahead_kib}',
        fill,
    )
    settings = _settings(site.tmp_dir) + _client(site.conf, site.client_id) + _rbd(rbd)
    return as_root(settings + shell.calling(__file__, "\n".join(lines)))


def unmount_below(folder: str) -> str:
    """Unmount what CBT has mounted below a folder where only root can mount, and unmap it."""
    return as_root(_unmounting(shlex.join(["unmount_below", folder])))


def _unmounting(calls: str) -> str:
    return shell.calling(shell.__file__, shell.calling(__file__, calls))


def _client(conf: str, client_id: str) -> str:
    asked = {"conf": conf, "user": client_id, "names": ["fsid", "ms_client_mode"]}
    program = shell.program(rados_client_on_host)
    return (
        f"CLIENT=$(cat <<\\CLIENT_PROGRAM\n{program}CLIENT_PROGRAM\n)\n"
        f"CONF={shlex.quote(conf)}\nCLIENT_ID={shlex.quote(client_id)}\n"
        f"ASKED={shlex.quote(json.dumps(asked))}\n"
    )


def _settings(tmp_dir: str) -> str:
    values = {
        "SUDO": "",
        "SYS": "/sys",
        "GIVES_UP_S": str(_GIVES_UP_S),
        "MAPPED": _folder(tmp_dir),
        "MOUNTS": _mounts(tmp_dir),
        "PREFIX": mapping_prefix(tmp_dir),
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def as_root(text: str) -> str:
    """The text in one shell of root's."""
    # What holds keys leaves no core.
    return f"$SUDO sh -euc {shlex.quote('ulimit -c 0' + chr(10) + text)}"
