"""The kernel's own RBD client: fio on the block devices that it makes of images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal, Optional

from pydantic import Field
from typing_extensions import override

from cbt_crypto.benchmarks import base
from cbt_crypto.benchmarks.base import ClusterCommands, Volume, WrapClient
from cbt_crypto.benchmarks.rbd import RbdSingleClient
from cbt_crypto.hosts.devices import rbd_images
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import HostScripts, Site

# What failed first decides how it ends.
_ENCLOSED = """\
(
detach_all() {{
{after}
}}
trap 'status=$?; trap - EXIT; detach_all || [ $status != 0 ] || status=1; exit $status' EXIT
{before}
(
{text}
)
)"""
#: What a client lacks for the kernel's client, or ok.
NEEDS_KRBD = """\
$SUDO modprobe -q rbd 2> /dev/null || :
if [ ! -d /sys/bus/rbd ]; then
    echo "its kernel, $(uname -r), has no RBD client (module rbd); take another kernel, or a \
lab of virtual machines"
elif ! command -v rbd > /dev/null; then echo 'rbd is missing; install ceph-common'
else echo ok; fi"""


class RbdKrbd(RbdSingleClient):
    """One fio process on the first client, on an image that the kernel's client has mapped.

    ms_mode is secure where a client of the cluster has ms_client_mode secure; else crc.
    """

    name: ClassVar[str] = "rbd_krbd"
    takes_encryption: ClassVar[bool] = True
    uses_client_libraries: ClassVar[bool] = False

    ioengine: Literal["libaio", "io_uring"] = Field(
        "libaio", description="how fio asks the kernel for IO"
    )

    @override
    def requirements(self, site: Site) -> Sequence[Requirement]:
        return (Requirement("krbd", site.active_clients, NEEDS_KRBD),)

    @override
    def volumes(self, site: Site) -> tuple[Volume, ...]:
        """Those of an encrypted configuration are others, so that both can be on one cluster."""
        encryption = site.volume_encryption
        suffix = f"-{encryption.label}" if encryption else ""
        return tuple(
            replace(
                volume, name=f"{volume.name}-krbd{suffix}", encryption=encryption,
                tmp_dir=site.tmp_dir, conf=site.conf, client_id=site.client_id,
            )
            for volume in super().volumes(site)
        )  # fmt: skip

    @override
    def created_mb(self, volume: Volume) -> int:
        return volume.size_mb + (volume.encryption.header_mb if volume.encryption else 0)

    @override
    def prefill_scripts(
        self, volumes: Sequence[Volume], run_dir: str, commands: ClusterCommands
    ) -> HostScripts:
        scripts = dict(super().prefill_scripts(volumes, run_dir, commands))
        return self.attached(scripts, volumes, commands, formats=True)

    @override
    def warm_scripts(
        self, volumes: Sequence[Volume], run_dir: str, commands: ClusterCommands
    ) -> HostScripts:
        scripts = dict(super().warm_scripts(volumes, run_dir, commands))
        return self.attached(scripts, volumes, commands)

    @override
    def measure(
        self, site: Site, run_dir: str, commands: ClusterCommands, wrap: WrapClient
    ) -> HostScripts:
        scripts = super().measure(site, run_dir, commands, wrap)
        return self.attached(scripts, self.volumes(site), commands)

    def attached(
        self, scripts: Mapping[str, str], volumes: Sequence[Volume], commands: ClusterCommands,
        formats: bool = False,
    ) -> HostScripts:  # fmt: skip
        """Each script with its host's volumes attached, and detached behind it, whatever fails."""
        hosts = dict(scripts)
        if formats:
            # A volume that nobody fills gets its header all the same.
            hosts = {**{volume.client: ":" for volume in volumes}, **hosts}
        texts = {}
        for host, text in hosts.items():
            of_host = [volume for volume in volumes if volume.client == host]
            before = "\n".join(_attached(of_host, commands, formats))
            after = rbd_images.detach([volume.name for volume in of_host], of_host[0].tmp_dir)
            texts[host] = _ENCLOSED.format(before=before, text=text, after=after)
        return texts

    @override
    def fio_of(self, volume: Volume, job: base.Job, commands: Optional[ClusterCommands]) -> str:
        options = {
            "ioengine": self.ioengine,
            "filename": rbd_images.path(volume.tmp_dir, volume.name),
            "direct": 1,
            "invalidate": 0,
            "size": f"{volume.size_mb}M",
            **self._buffers(),
            **job,
        }
        return f"$SUDO {base.command(self.fio_cmd, options)}"


def _attached(volumes: Sequence[Volume], commands: ClusterCommands, formats: bool) -> Iterator[str]:
    """A script for each ceph.conf: groups side by side may speak in modes of their own."""
    for conf in dict.fromkeys(volume.conf for volume in volumes):
        of_conf = [volume for volume in volumes if volume.conf == conf]
        images = [(volume.pool, volume.name, volume.encryption) for volume in of_conf]
        first = of_conf[0]
        yield rbd_images.attach(images, first.tmp_dir, conf, commands.rbd, formats, first.client_id)
