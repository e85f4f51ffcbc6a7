"""Texts of the file that would run something if they reached a shell unquoted.

Each text field of the file gets each of them. Either the file is refused, or every script that the
campaign makes is run, with a stand-in for every program, and nothing happens but what should.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Callable

import pytest

from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.engine.embedded import monitoring
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.remote import preamble
from cbt_crypto.plan.file import Campaign, read_campaign
from cbt_crypto.plan.layout import site_of
from cbt_crypto.plan.order import cells_of
from cbt_crypto.run.preflight.check import checks
from cbt_crypto.run.targets.base import commands_of

pytestmark = pytest.mark.unit

#: Redirections are the shell's own, so they need no program that could be stood in for.
HOSTILE = (
    "$(: > CANARY)",
    "`: > CANARY`",
    "x; : > CANARY #",
    "x' ; : > CANARY ; '",
    'x" ; : > CANARY ; "',
    "x && : > CANARY",
    "x\n: > CANARY\n",
    "x > CANARY",
    "--help",
    "%h %u",
    "a\\",
    "-oProxyCommand=: > CANARY",
    # A Cyrillic o, and a space that takes no room: names that look like others.
    "n\u043ede0 $(: > CANARY)",
    "node0\u200b",
    "node0\u2028: > CANARY",
)
PROGRAMS = """
    basename cat ceph ceph-authtool ceph-conf ceph-mgr ceph-mon ceph-osd collectl cut date dd
    dirname env fio grep head
    id kill ls lsblk mkdir monmaptool osdmaptool perf python3 rbd readlink rm sed setsid sh sleep
    sort sudo tail tee touch tr truncate wc wipefs xargs
"""


def at(place: str, value: Any) -> dict[str, Any]:
    """The sections that put `value` at a dotted place; `?` is a key that is itself the value."""
    head, _, rest = place.partition(".")
    inner = at(rest, value) if rest else value
    return {value if head == "?" else head: inner}


PLACES: tuple[tuple[str, Callable[[str], Any]], ...] = (
    ("cluster.user", str),
    ("cluster.head", str),
    ("cluster.clients", lambda text: [text]),
    ("cluster.osds", lambda text: [text]),
    ("cluster.mons", lambda text: {text: {"b": "10.0.0.2"}}),
    ("cluster.mons", lambda text: {"head": {text: "10.0.0.2"}}),
    ("cluster.mons", lambda text: {"head": {"a": text}}),
    ("cluster.mgrs", lambda text: {text: {"y": None}}),
    ("cluster.mgrs", lambda text: {"head": {text: None}}),
    ("cluster.osd_devices", lambda text: f"/dev/{text}"),
    ("cluster.osd_devices", lambda text: [f"/dev/{text}"]),
    ("cluster.osd_devices", lambda text: {"o0": ["/dev/a"], text: ["/dev/b"]}),
    ("cluster.osd_file_size", str),
    ("cluster.tmp_dir", lambda text: f"/tmp/{text}"),
    ("cluster.conf_file", str),
    ("cluster.pool_profiles", lambda text: {text: {"replication": 2}}),
    ("cluster.configurations", lambda text: {text: {}}),
    ("cluster.ceph_cmd", str),
    ("cluster.rbd_cmd", str),
    ("cluster.ceph_osd_cmd", str),
    ("cluster.ceph_mon_cmd", str),
    ("cluster.ceph_mgr_cmd", str),
    ("benchmarks.rbd_single_client.fio_cmd", str),
    ("benchmarks.rbd_single_client.pool_profile", str),
    ("benchmarks.rbd_single_client.mode", str),
    ("benchmarks.rbd_single_client.configuration", str),
    ("monitoring_profiles.collectl.args", str),
    ("monitoring_profiles.perf.args", str),
    ("monitoring_profiles.perf.perf_cmd", str),
)


def scripts_of(campaign: Campaign, cluster: Any, notebook: Any) -> Iterator[str]:
    """Everything that the campaign would run on a host."""
    cluster.initialize()
    cluster.mkpool("rbd", next(iter(campaign.cluster.pool_profiles)), "rbd")
    cluster.restart()
    cluster.shutdown()
    cluster.purge()
    for _, scripts in notebook.steps:
        yield from scripts.values()
    cells = cells_of(campaign)
    stack = Stack(next(iter(campaign.configurations.values())))
    for need in checks(campaign, cells, [stack]):
        yield need.script
    site, commands = site_of(campaign.cluster), commands_of(cluster, "admin")
    run_dir = f"{campaign.cluster.tmp_dir}/run"
    scenario = cells[0].scenario
    volumes = scenario.volumes(site)
    yield scenario.create(volumes, commands)
    yield from scenario.prefill_scripts(volumes, run_dir, commands).values()
    yield from scenario.measure(site, run_dir, commands, stack.wrap_client).values()
    for name, profile in campaign.monitoring.model_dump(exclude_none=True).items():
        yield monitoring.start_script(name, profile, run_dir)


def test_the_canary_sings(tmp_path: Path) -> None:
    """An unquoted text of these does what the test below looks for."""
    sung = 0
    for text in HOSTILE:
        subprocess.run(["sh", "-c", f": {text}"], cwd=tmp_path, check=False, capture_output=True)
        if (tmp_path / "CANARY").exists():
            (tmp_path / "CANARY").unlink()
            sung += 1
    assert sung >= 6


@pytest.mark.parametrize(
    ("place", "shape"), PLACES, ids=[f"{n}-{place}" for n, (place, _) in enumerate(PLACES)]
)
def test_no_text_of_the_file_is_run(
    place: str, shape: Callable[[str], Any], tmp_path: Path, write_campaign: Callable[..., Path],
    cluster_of: Callable[[Campaign], Any], notebook: Any,
) -> None:  # fmt: skip
    bin_dir, here = tmp_path / "stand-ins", tmp_path / "here"
    bin_dir.mkdir()
    here.mkdir()
    (tmp_path / "cbt").mkdir()
    for name in PROGRAMS.split():
        (bin_dir / name).symlink_to("/bin/true")
    base = {"cluster": {"tmp_dir": f"{tmp_path}/cbt", "osds": ["o0"]}}
    for text in HOSTILE:
        sections = at(place, shape(text))
        merged = {**base, **sections, "cluster": {**base["cluster"], **sections.get("cluster", {})}}
        try:
            campaign = read_campaign(write_campaign(**merged))
        except UsageError as error:
            assert all(line.isprintable() for line in str(error).split("\n"))
            continue
        if campaign.cluster.conf_file:
            continue  # read on this machine alone, and by its name
        del notebook.steps[:], notebook.copies[:]
        cluster = cluster_of(campaign)
        scripts = dict.fromkeys(scripts_of(campaign, cluster, notebook))
        for script in (one for one in scripts if "CANARY" in one or text in one):
            run(script, bin_dir, here, campaign.cluster.tmp_dir)
            assert not list(tmp_path.rglob("CANARY")), f"{text!r} was run by:\n{script}"


@pytest.mark.parametrize(
    "name", ["n\u043ede0", "node0\u200b", "node\uff10", "-oX", "a b", "a;b", "[a-c]"]
)
def test_a_name_that_looks_like_a_host_s_is_none(
    name: str, write_campaign: Callable[..., Path]
) -> None:
    for place in ("cluster.head", "cluster.clients", "cluster.osds", "cluster.user"):
        value = [name] if place.endswith("s") else name
        with pytest.raises(UsageError, match=r"must be|should be"):
            read_campaign(write_campaign(**at(place, value)))


def run(script: str, bin_dir: Path, here: Path, tmp_dir: str) -> None:
    environment: Mapping[str, str] = {"PATH": str(bin_dir), "CBT_HOST": "o0"}
    subprocess.run(
        ["/bin/sh", "-c", f"{preamble(tmp_dir)}\nSUDO=\n{script}\nwait"],
        env=environment, cwd=here, check=False, capture_output=True, timeout=20,
        stdin=subprocess.DEVNULL, umask=os.umask(0o022) or 0o022,
    )  # fmt: skip


def test_what_a_host_s_environment_says_of_ceph_is_not_obeyed(tmp_path: Path) -> None:
    """CEPH_ARGS is stronger than ceph.conf: all rows were measured with an option of somebody's."""
    names = ("CEPH_ARGS", "CEPH_KEYRING")
    script = f"{preamble(str(tmp_path))}\nenv | grep ^CEPH_ || echo none"
    theirs = {**dict.fromkeys(names, "theirs"), "CBT_HOST": "h"}
    said = subprocess.check_output(["sh", "-c", script], env={**os.environ, **theirs}, text=True)
    assert said == "none\n"


def test_numbers_of_a_host_are_in_nobody_s_language(tmp_path: Path) -> None:
    """perf's 1.234.567 cycles counted as one, and no cipher was fast: 3105,7 MiB/s."""
    shown = "$LC_NUMERIC $LC_MESSAGES $LC_CTYPE ${LC_ALL-none}"
    script = f'{preamble(str(tmp_path))}\necho "{shown}"'
    theirs = {"LC_ALL": "de_DE.UTF-8", "LC_NUMERIC": "de_DE.UTF-8", "CBT_HOST": "h"}
    said = subprocess.check_output(["sh", "-c", script], env={**os.environ, **theirs}, text=True)
    assert said == "C C de_DE.UTF-8 none\n"
