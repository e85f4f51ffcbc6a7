"""Deploys a campaign's cluster in one of its configurations, and leaves it there.

Arguments: the campaign's file, the configuration's name, and an archive that may be written to.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.engine.choice import embedded
from cbt_crypto.plan.file import read_campaign
from cbt_crypto.run.targets.cluster import overlaid


def main() -> None:
    path, configuration, archive = sys.argv[1:]
    campaign = read_campaign(Path(path))
    engine = embedded()
    engine.settings.initialize(argparse.Namespace(config_file=path, archive=archive, conf=None))
    stack = Stack(campaign.configurations[configuration])
    cluster, _ = overlaid(engine.Ceph, engine.settings.cluster, [stack])
    cluster.initialize()
    for name in campaign.cluster.pool_profiles:
        cluster.mkpool(name, name, "rbd")
    cluster.check_health()


if __name__ == "__main__":
    main()
