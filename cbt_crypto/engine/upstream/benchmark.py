"""Upstream's benchmark base, with a cell's files where every engine has them."""

from __future__ import annotations

import os

from cbt_crypto.archive.files import cell_path
from cbt_crypto.engine.contract import Cluster, Section
from cbt_crypto.engine.upstream.common import Common
from cbt_crypto.engine.upstream.failure import failures_named
from cbt_crypto.engine.upstream.modules import Modules


class UpstreamBenchmark:
    """Has an object of upstream's base class, `theirs`, make what it makes."""

    def __init__(
        self, modules: Modules, common: Common, archive_dir: str, cluster: Cluster, config: Section
    ) -> None:
        """`archive_dir` is the campaign's."""
        self._common = common
        self.cluster = cluster
        self.config = dict(config)
        # Snapshots hash the config in other ways.
        name = cell_path(config)
        self.archive_dir = os.path.join(archive_dir, name)
        self.run_dir = f"{cluster.tmp_dir}/run/{name}"
        self.theirs = modules.Benchmark(archive_dir, cluster, {"osd_ra": "0", **config})
        self.theirs.config = self.config
        # It would write to /sys of the OSD hosts' disks.
        self.theirs.osd_ra_changed = False
        self.theirs.archive_dir = self.archive_dir
        self.theirs.run_dir = self.run_dir

    def exists(self) -> bool:
        """Whether the archive has this benchmark's directory already."""
        return os.path.exists(self.archive_dir)

    def initialize(self) -> None:
        """Make the directories here and on the nodes."""
        with failures_named("prepare a cell"):
            self.theirs.initialize()
            self._common.make_remote_dir(self.run_dir)
            self._common.mkdir_p(self.archive_dir)

    def run(self) -> None:
        """Start anew with empty directories on the nodes; note the cell's config."""
        with failures_named("begin a cell"):
            self.theirs.run()
            self._common.make_remote_dir(self.run_dir)

    def cleanup(self) -> None:
        """Remove this benchmark's directory on the nodes."""
        with failures_named("end a cell"):
            self._common.clean_remote_dir(self.run_dir)
