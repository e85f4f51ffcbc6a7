"""CBT's benchmark base: where a cell's files go, here and on the nodes."""

from __future__ import annotations

import os
from typing import Any

import yaml

from cbt_crypto.archive.files import cell_path
from cbt_crypto.engine.contract import Cluster, Section
from cbt_crypto.engine.embedded import common
from cbt_crypto.hosts.secret import document_without


class Benchmark:
    """One combination of a section's dimensions. `config` has a value for each option."""

    def __init__(
        self, archive_dir: str, cluster: Cluster, config: Section, execution: Any = common
    ) -> None:
        self._common = execution
        self.config = dict(config)
        self.cluster = cluster
        name = cell_path(self.config)
        self.archive_dir = os.path.join(archive_dir, name)
        self.run_dir = f"{cluster.tmp_dir}/run/{name}"

    def exists(self) -> bool:
        """Whether the archive has this benchmark's directory already."""
        return os.path.exists(self.archive_dir)

    def initialize(self) -> None:
        """Make the directories here and on every node."""
        self._common.make_remote_dir(self.run_dir)
        self._common.mkdir_p(self.archive_dir)
        path = os.path.join(self.archive_dir, "benchmark_config.yaml")
        cluster = {k: v for k, v in self.cluster.config.items() if k != "archive_dir"}
        shown = {"cluster": cluster, **self.config}
        with open(path, "w", encoding="utf-8") as file:
            yaml.safe_dump(document_without(shown), file)

    def run(self) -> None:
        """Start anew with empty directories on the nodes."""
        self._common.empty_remote_dir(self.run_dir)

    def cleanup(self) -> None:
        """Remove this benchmark's directory on every node."""
        self._common.clean_remote_dir(self.run_dir)
