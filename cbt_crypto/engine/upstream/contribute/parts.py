"""What goes into which commit: our modules by their subject, and files written for upstream."""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[3]
FILES = Path(__file__).resolve().parent / "files"

#: Not for upstream: the lab is a way to try this project, and this is what makes the branch.
_LEFT_OUT = ("lab", "engine/upstream/contribute", "cli.py", "__main__.py")


@dataclass(frozen=True)
class Commit:
    """One commit: its message, our modules by path below the package, and files for upstream."""

    subject: str
    body: str
    packages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    #: Everything of the package that no other commit takes.
    takes_the_rest: bool = False
    edits_upstream: bool = False


COMMITS: tuple[Commit, ...] = (
    Commit(
        "cluster: a factory, and overlays on how a cluster is deployed",
        "A configuration file may name configurations: stacks of overlays, each one change to\n"
        "how the cluster is deployed, with commands that prove it is in force. cbt.py asks\n"
        "clusterfactory for the cluster, and gives such a file to it before anything is touched.\n"
        "Files without configurations run as before.",
        files=("clusterfactory.py",),
        takes_the_rest=True,
        edits_upstream=True,
    ),
    Commit(
        "cluster_overlays: LUKS, secure messenger, cpuset and others",
        "One module an overlay. A new one is a module and a line in the table of its package.",
        packages=("cluster_overlays",),
    ),
    Commit(
        "benchmarks: scenarios that load a cluster as its users do",
        "Many clients, one client, and one client with one IO at a time; and librbdfio and\n"
        "radosbench, so that they can be measured under overlays too.",
        packages=("benchmarks",),
    ),
    Commit(
        "post-processing: tables of what each configuration costs",
        "Reads the archive of a campaign, or of librbdfio. Percentages have intervals, and\n"
        "percentiles come from fio's histograms.",
        packages=("results", "report"),
        files=("tools/overlay_report.py",),
    ),
    Commit(
        "example: what encryption costs",
        "A campaign of four configurations and three scenarios.",
        files=("example/overlays.yaml",),
    ),
    Commit(
        "docs: overlays, scenarios and campaigns",
        "",
        files=("docs/Overlays.md",),
    ),
    Commit(
        "tests: the factory, overlays, scenarios and the post-processor",
        "",
        files=(
            "tests/test_clusterfactory.py",
            "tests/test_overlays.py",
            "tests/test_scenarios.py",
            "tests/test_overlay_report.py",
        ),
    ),
)


def modules(commit: Commit) -> Iterator[tuple[str, bytes]]:
    """(path in the checkout, content) of the package's files that belong to the commit."""
    others = {name for each in COMMITS for name in each.packages}
    for path in _files_below(PACKAGE):
        relative = path.relative_to(PACKAGE)
        top = relative.parts[0]
        if relative.as_posix().startswith(_LEFT_OUT) or "__pycache__" in relative.parts:
            continue
        if top in commit.packages or (commit.takes_the_rest and top not in others):
            yield f"{PACKAGE.name}/{relative.as_posix()}", path.read_bytes()


def _files_below(directory: Path) -> list[Path]:
    """All files; in this project's sources some of the package's folders are links."""
    walked = os.walk(directory, followlinks=True)
    return sorted(Path(folder, name) for folder, _, names in walked for name in names)


def written(commit: Commit) -> Mapping[str, bytes]:
    """The same of the files that are for upstream alone; `.in` keeps them out of our own checks."""
    return {name: (FILES / f"{name}.in").read_bytes() for name in commit.files}


def requirements() -> list[str]:
    """Lines for requirements.txt: what this package needs, by its sources or its installation."""
    sources = configparser.ConfigParser()
    if sources.read(PACKAGE.parent / "setup.cfg") and sources.has_section("options"):
        return sources["options"]["install_requires"].split("\n")[1:]
    return [line for line in metadata.requires("cbt-crypto") or () if "extra ==" not in line]
