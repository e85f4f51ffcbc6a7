"""What a published campaign takes until all its percentages are known: by its own way, and by ours.

    python perf/simulated/article_campaign.py --like ARCHIVE [--precision 2%]
    python perf/simulated/article_campaign.py --differ 1% [--deploy 60] [--fill 2000] [--around 5]

Of configs/reef_encryption.yaml (seven configurations and a control, ten loads) it makes three
campaigns that end at a precision: a new cluster for every configuration and scenario, 300 s a
cell, as the article measured; rounds in which configurations share what they can, 60 s a cell; and
side by side, in two turns of 10 s on each deployment. Each is planned, and predicted as
`--plan --like ARCHIVE` does it, from what deploying and filling took in an archive and from what
percentages differ by there. Where there is none, `--differ` says by how much a percent differs from
one deployment to the next, its turns averaged, and the others what steps take.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from cbt_crypto.errors import UsageError
from cbt_crypto.plan.allocation import Seen, Spread
from cbt_crypto.plan.file import read_campaign
from cbt_crypto.plan.predict import Earlier, predict
from cbt_crypto.plan.steps import plan

ARTICLE = Path(__file__).parents[2] / "configs" / "reef_encryption.yaml"
#: It changes whole hosts' settings, and groups of OSDs beside one another cannot have it.
_WITHOUT = "LUKS, as Ceph makes it"
#: More deployments than anybody waits for.
_MOST = 100
#: Of each way, what the file says of the cluster and how long it measures at a time.
WAYS: dict[str, tuple[dict[str, Any], int]] = {
    "the article's": ({"rebuild": "scenario", "order": "rounds"}, 300),
    "rounds": ({"rebuild": "needed", "order": "rounds"}, 60),
    "side by side": ({"rebuild": "needed", "layout": "side_by_side", "turns": 2}, 10),
}


def campaign(way: str, precision: str) -> dict[str, Any]:
    """The article's file, to be measured in that way until its percentages are so well known."""
    document = yaml.safe_load(ARTICLE.read_text(encoding="utf-8"))
    cluster, seconds = WAYS[way]
    turns = cluster.get("turns", 1)
    document["cluster"].update(cluster, iterations=_MOST)
    del document["cluster"]["configurations"][_WITHOUT]
    time = {"precision": precision, "min": 1, "max": seconds * turns * _MOST, "block": seconds}
    for scenario in document["benchmarks"].values():
        scenario["time"] = time
    return dict(document)


class Supposed(Earlier):
    """In place of an archive: what is supposed of deployments and of what percentages differ by."""

    def __init__(self, scratch: Path, options: argparse.Namespace) -> None:
        """Writes what `Earlier` reads."""
        steps = [
            {"step": "deploy", "how": "rebuild", "seconds": options.deploy},
            {"step": "prefill", "mib": options.fill, "seconds": 1.0},
            {"step": "measure", "seconds_measured": 0, "seconds": options.around},
        ]
        results = scratch / "results"
        (results / "0" / "id-0").mkdir(parents=True)
        (results / "0" / "id-0" / "cell.json").write_text('{"state": "finished"}')
        (results / "timeline.json").write_text(json.dumps({"format": 1, "steps": steps}))
        super().__init__(scratch)
        self._differ = math.log1p(float(options.differ.rstrip("%")) / 100)

    @property
    def seen(self) -> list[Seen]:
        """As if many deployments had told of it."""
        spread = Spread(0.0, 0.0, self._differ**2, 30)
        return [Seen("", {}, "iops", where, spread) for where in ("apart", "shared", "beside")]


def predictions(earlier: Earlier, precision: str, scratch: Path) -> Iterator[tuple[str, ...]]:
    """A row of each way: hours, their range, and the deployments that its slowest load takes."""
    for number, way in enumerate(WAYS):
        path = scratch / f"{number}.yaml"
        path.write_text(yaml.safe_dump(campaign(way, precision)), encoding="utf-8")
        found = predict(plan(read_campaign(path)), earlier)
        hours = (found.seconds, found.low, found.high, found.deploying, found.filling)
        yield (
            way,
            *(f"{seconds / 3600:.1f}" for seconds in hours),
            _slowest(found.rounds.values()),
        )


def _slowest(words: Iterable[str]) -> str:
    return max(words, key=len)


def main() -> int:
    """Print hours by each way; 2 where the archive tells nothing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--like", type=Path, metavar="ARCHIVE", help="an earlier archive")
    source.add_argument("--differ", metavar="PERCENT", help="in its place, e.g. 1%%")
    parser.add_argument("--precision", default="2%", help="of every percent (default: 2%%)")
    parser.add_argument("--deploy", type=float, default=60, help="seconds of a deployment")
    parser.add_argument("--fill", type=float, default=2000, help="MiB/s at which volumes fill")
    parser.add_argument("--around", type=float, default=5, help="seconds around a cell")
    options = parser.parse_args()
    table = Table("way", "hours", "from", "to", "deploying", "filling", "deployments", box=None)
    with tempfile.TemporaryDirectory(prefix="article-campaign-") as name:
        scratch = Path(name)
        try:
            earlier = Earlier(options.like) if options.like else Supposed(scratch, options)
            for row in predictions(earlier, options.precision, scratch):
                table.add_row(*row)
        except UsageError as error:
            print(error, file=sys.stderr)
            return 2
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
