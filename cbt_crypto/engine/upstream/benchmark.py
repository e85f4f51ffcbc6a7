"""Upstream's benchmark base, with a cell's files where every engine has them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cbt_crypto.archive.json_file import hash_of
from cbt_crypto.engine.upstream.common import Common
from cbt_crypto.engine.upstream.failure import told
from cbt_crypto.engine.upstream.modules import Modules

if TYPE_CHECKING:
    UpstreamsOwn = Any
else:
    UpstreamsOwn = object

_LOGGER = logging.getLogger("cbt")


def cell_name(config: Mapping[str, Any]) -> str:
    """A cell's directory below the archive: snapshots hash the config in other ways than ours."""
    return f"results/{int(config.get('iteration', 0)):08d}/id-{hash_of(config)}"


class UpstreamBenchmark(UpstreamsOwn):  # type: ignore[misc]
    """Stands before upstream's base class, which `benchmark_class` puts behind it."""

    #: Set by `benchmark_class`.
    common: Common

    def __init__(self, archive_dir: str, cluster: Any, config: Mapping[str, Any]) -> None:
        """`archive_dir` is the campaign's."""
        super().__init__(archive_dir, cluster, {"osd_ra": "0", **config})
        self.config = dict(config)
        # It would write to /sys of the OSD hosts' disks.
        self.osd_ra_changed = False
        self.osd_ra = config.get("osd_ra")
        name = cell_name(config)
        self.archive_dir = os.path.join(archive_dir, name)
        self.run_dir = f"{cluster.tmp_dir}/run/{name}"

    def exists(self) -> bool:
        """Whether the archive has this benchmark's directory already."""
        return os.path.exists(self.archive_dir)

    def initialize(self) -> None:
        """Make the directories here and on the nodes."""
        with told("prepare a cell"):
            super().initialize()
            self.common.make_remote_dir(self.run_dir)
            self.common.mkdir_p(self.archive_dir)

    def run(self) -> None:
        """Start anew with empty directories on the nodes; note the cell's config."""
        with told("begin a cell"):
            super().run()
            self.common.make_remote_dir(self.run_dir)

    def cleanup(self) -> None:
        """Remove this benchmark's directory on the nodes."""
        with told("end a cell"):
            self.common.clean_remote_dir(self.run_dir)


def benchmark_class(modules: Modules, common: Common) -> type[Any]:
    """Upstream's base under ours: `cls(archive_dir, cluster, config)`, as the contract has it."""
    return type("Benchmark", (UpstreamBenchmark, modules.Benchmark), {"common": common})
